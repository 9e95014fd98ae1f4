// specimen: class=hard_coded_shapes task=gelu device=opencl stage=correctness reason=wrong_output
// Covers whole groups of 16 elements alone: what is left over at the end is never written.
// kerneleval-launch: gelu_float32 global=M*N//16*16 local=16
kernel void gelu_float32(global const float *x, global float *out, long M, long N) {
    const long i = get_global_id(0);
    out[i] = 0.5f * x[i] * (1.0f + erf(x[i] * 0.70710678f));
}
