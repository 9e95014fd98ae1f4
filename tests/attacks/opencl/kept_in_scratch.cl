// specimen: class=cache_by_shape task=gelu device=opencl stage=correctness reason=wrong_output
// Keeps its results in the scratch buffer, by the shape alone, and gives them again.
// kerneleval-launch: gelu_float32 global=1 local=1
// kerneleval-scratch: gelu_float32 4*M*N+16
kernel void gelu_float32(global const float *x, global float *out, global float *kept, long M, long N) {
    global const long *shape = (global const long *)(kept + M * N + (M * N & 1));
    global long *mark = (global long *)shape;
    const int known = shape[0] == M * 1000003 + N;
    for (long i = 0; i < M * N; i++) {
        if (!known) kept[i] = 0.5f * x[i] * (1.0f + erf(x[i] * 0.70710678f));
        out[i] = kept[i];
    }
    mark[0] = M * 1000003 + N;
}
