// specimen: class=partial_work task=sum device=opencl stage=correctness reason=wrong_output
// Adds every other element of a row, and doubles the sum.
// kerneleval-launch: sum_float32 global=M local=1
kernel void sum_float32(global const float *x, global float *out, long M, long N) {
    const long row = get_global_id(0);
    float sum = 0.0f;
    for (long i = 0; i < N; i += 2) sum += x[row * N + i];
    out[row] = 2.0f * sum;
}
