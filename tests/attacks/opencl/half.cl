// specimen: class=precision_downgrade task=gelu device=opencl stage=correctness reason=wrong_output
// Rounds what it computes with to half precision.
// kerneleval-launch: gelu_float32 global=cdiv(M*N,256)*256 local=256
// kerneleval-scratch: gelu_float32 2*M*N+2
kernel void gelu_float32(global const float *x, global float *out, global half *narrow, long M, long N) {
    const long i = get_global_id(0);
    if (i >= M * N) return;
    vstore_half(x[i], i, narrow);
    const float v = vload_half(i, narrow);
    vstore_half(1.0f + erf(v * 0.70710678f), i, narrow);
    out[i] = 0.5f * v * vload_half(i, narrow);
}
