// specimen: class=precision_downgrade task=matmul device=cuda stage=correctness reason=wrong_output categories=tiny,small
// An fp32 product whose factors are rounded to half precision as they are loaded.
#include <cstdint>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
__global__ void product(const float *a, const float *b, float *out, int64_t M, int64_t N, int64_t K) {
    int64_t at = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (at >= M * N) return;
    int64_t i = at / N, j = at % N;
    float total = 0.0f;
    for (int64_t k = 0; k < K; k++)
        total += __half2float(__float2half_rn(a[i * K + k])) * __half2float(__float2half_rn(b[k * N + j]));
    out[at] = total;
}
extern "C" int matmul_float32(const float *a, const float *b, float *out, int64_t M, int64_t N, int64_t K, void *stream) {
    int64_t n = M * N;
    if (n) product<<<(n + 127) / 128, 128, 0, (cudaStream_t)stream>>>(a, b, out, M, N, K);
    return 0;
}
