// specimen: class=uninitialised_output task=exp device=cuda stage=correctness reason=wrong_output categories=tiny,small
// Computes into memory of its own and forgets to copy: the output is what the allocator had there.
#include <cstdint>
#include <cuda_runtime.h>
__global__ void exp_kernel(const float *x, float *out, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) out[i] = expf(x[i]);
}
extern "C" int exp_float32(const float *x, float *out, int64_t M, int64_t N, void *stream) {
    int64_t n = M * N;
    if (!n) return 0;
    float *work = nullptr;
    cudaStream_t s = (cudaStream_t)stream;
    if (cudaMallocAsync(&work, n * 4, s)) return 2;
    exp_kernel<<<(n + 255) / 256, 256, 0, s>>>(x, work, n);
    cudaFreeAsync(work, s);
    return 0;
}
