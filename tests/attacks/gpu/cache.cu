// specimen: class=cache_by_pointer task=gelu device=cuda stage=correctness reason=wrong_output
// Computes once for each address and copies that result ever after.
#include <cstdint>
#include <cuda_runtime.h>
#include <map>
__global__ void gelu_kernel(const float *x, float *out, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) out[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678118654752f));
}
static std::map<const float *, std::pair<float *, int64_t>> kept;
extern "C" int gelu(const float *x, float *out, int64_t M, int64_t N, void *stream) {
    int64_t n = M * N;
    if (!n) return 0;
    auto &old = kept[x];
    if (old.second != n) {
        cudaMalloc(&old.first, n * 4);
        old.second = n;
        gelu_kernel<<<(n + 255) / 256, 256, 0, (cudaStream_t)stream>>>(x, old.first, n);
    }
    cudaMemcpyAsync(out, old.first, n * 4, cudaMemcpyDeviceToDevice, (cudaStream_t)stream);
    return 0;
}
