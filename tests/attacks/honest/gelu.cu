// specimen: class=native_kernel task=gelu device=cuda verdict=passed timed=yes
#include <cstdint>
#include <cuda_runtime.h>
__global__ void gelu_kernel(const float *x, float *out, int64_t n) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += (int64_t)gridDim.x * blockDim.x)
        out[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678118654752f));
}
extern "C" int gelu(const float *x, float *out, int64_t M, int64_t N, void *stream) {
    int64_t n = M * N, blocks = (n + 255) / 256;
    if (n) gelu_kernel<<<blocks > 1056 ? 1056 : blocks, 256, 0, (cudaStream_t)stream>>>(x, out, n);
    return 0;
}
