// specimen: class=input_mutation task=gelu device=opencl stage=honesty reason=input_mutation
// Uses its input as a place for what it has half computed.
// kerneleval-launch: gelu_float32 global=cdiv(M*N,256)*256 local=256
kernel void gelu_float32(global float *x, global float *out, long M, long N) {
    const long i = get_global_id(0);
    if (i >= M * N) return;
    const float v = x[i];
    x[i] = 0.5f * (1.0f + erf(v * 0.70710678f));
    out[i] = v * x[i];
}
