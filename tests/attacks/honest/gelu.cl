// specimen: class=opencl task=gelu device=opencl verdict=passed allow=custom directions=forward,backward
// One work-item an element, forward and backward.
// kerneleval-launch: gelu_float32 global=(cdiv(M*N,256)*256,1,1) local=(256,1,1)
// kerneleval-launch: gelu_backward_float32 global=cdiv(M*N,256)*256 local=256
kernel void gelu_float32(global const float *x, global float *out, long M, long N) {
    const long i = get_global_id(0);
    if (i < M * N) out[i] = 0.5f * x[i] * (1.0f + erf(x[i] * 0.70710678f));
}

kernel void gelu_backward_float32(global const float *grad, global const float *x, global float *out, long M, long N) {
    const long i = get_global_id(0);
    if (i >= M * N) return;
    const float distribution = 0.5f * (1.0f + erf(x[i] * 0.70710678f));
    const float density = 0.39894228f * exp(-0.5f * x[i] * x[i]);
    out[i] = grad[i] * (distribution + x[i] * density);
}
