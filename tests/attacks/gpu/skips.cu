// specimen: class=skipped_calls task=gelu device=cuda stage=correctness,timing reason=wrong_output timed=yes
// Leaves every second call out.
#include <cstdint>
#include <cuda_runtime.h>
__global__ void gelu_kernel(const float *x, float *out, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) out[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678118654752f));
}
static int calls = 0;
extern "C" int gelu(const float *x, float *out, int64_t M, int64_t N, void *stream) {
    int64_t n = M * N;
    if (n && ++calls % 2) gelu_kernel<<<(n + 255) / 256, 256, 0, (cudaStream_t)stream>>>(x, out, n);
    return 0;
}
