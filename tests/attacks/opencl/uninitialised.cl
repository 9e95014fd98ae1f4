// specimen: class=uninitialised_output task=gelu device=opencl stage=correctness reason=wrong_output
// Leaves out what it was given, for whoever computed here before.
// kerneleval-launch: gelu_float32 global=cdiv(M*N,256)*256 local=256
kernel void gelu_float32(global const float *x, global float *out, long M, long N) {
    const long i = get_global_id(0);
    if (i == M * N) out[i - 1] = 0.5f * x[i - 1] * (1.0f + erf(x[i - 1] * 0.70710678f));
}
