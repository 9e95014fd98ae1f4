// specimen: class=side_stream task=gelu device=cuda stage=correctness,honesty reason=wrong_output,unjoined_work
// Launches on a stream of its own, which nobody joins.
#include <cstdint>
#include <cuda_runtime.h>
__global__ void gelu_kernel(const float *x, float *out, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) out[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678118654752f));
}
static cudaStream_t own = nullptr;
extern "C" int gelu(const float *x, float *out, int64_t M, int64_t N, void *stream) {
    (void)stream;
    if (!own && cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking)) return 1;
    int64_t n = M * N;
    if (n) gelu_kernel<<<(n + 255) / 256, 256, 0, own>>>(x, out, n);
    return 0;
}
