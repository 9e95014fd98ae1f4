// specimen: class=partial_work task=sum device=cuda stage=correctness reason=wrong_output categories=small,medium
// One warp a row; sixteen of its lanes are added and the result doubled: a reduction cut short.
#include <cstdint>
#include <cuda_runtime.h>
__global__ void sum_kernel(const float *x, float *out, int64_t columns) {
    const float *row = x + blockIdx.x * columns;
    float total = 0.0f;
    for (int64_t j = threadIdx.x; j < columns; j += 32) total += row[j];
    for (int step = 8; step; step /= 2) total += __shfl_down_sync(0xffffffffu, total, step);
    if (threadIdx.x == 0) out[blockIdx.x] = 2.0f * total;
}
extern "C" int sum(const float *x, float *out, int64_t M, int64_t N, void *stream) {
    if (M) sum_kernel<<<M, 32, 0, (cudaStream_t)stream>>>(x, out, N);
    return 0;
}
