// specimen: class=coarse_approximation task=silu device=cuda stage=correctness reason=wrong_output categories=small,medium
// The logistic function by one hardware tanh of eleven bits.
#include <cstdint>
#include <cuda_runtime.h>
__device__ float coarse_tanh(float v) {
    float r;
    asm("tanh.approx.f32 %0, %1;" : "=f"(r) : "f"(v));
    return r;
}
__global__ void silu_kernel(const float *x, float *out, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] * (0.5f + 0.5f * coarse_tanh(0.5f * x[i]));
}
extern "C" int silu(const float *x, float *out, int64_t M, int64_t N, void *stream) {
    int64_t n = M * N;
    if (n) silu_kernel<<<(n + 255) / 256, 256, 0, (cudaStream_t)stream>>>(x, out, n);
    return 0;
}
