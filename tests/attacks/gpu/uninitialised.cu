// specimen: class=uninitialised_output task=exp device=cuda stage=correctness reason=wrong_output categories=tiny,small
// Computes into memory of its own and forgets to copy: the output is what the allocator had there.
#include <cstdint>
#include <cuda_runtime.h>
__global__ void exp_kernel(const float *x, float *out, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) out[i] = expf(x[i]);
}
static float *work = nullptr;
static int64_t room = 0;
extern "C" int exp_float32(const float *x, float *out, int64_t M, int64_t N, void *stream) {
    int64_t n = M * N;
    (void)out;
    if (!n) return 0;
    if (n > room) {
        if (work) cudaFree(work);
        if (cudaMalloc(&work, n * 4)) return 2;
        room = n;
    }
    exp_kernel<<<(n + 255) / 256, 256, 0, (cudaStream_t)stream>>>(x, work, n);
    return 0;
}
