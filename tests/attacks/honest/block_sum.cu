// specimen: class=tree_reduction task=sum device=cuda verdict=passed allow=custom
// Shuffles within warps, then one warp over the warps' sums.
#include <cstdint>
#include <cuda_runtime.h>
__device__ float warp_sum(float v) {
    for (int step = 16; step; step /= 2) v += __shfl_down_sync(0xffffffffu, v, step);
    return v;
}
__global__ void sum_kernel(const float *x, float *out, int64_t columns) {
    __shared__ float part[8];
    const float *row = x + blockIdx.x * columns;
    float total = 0.0f;
    for (int64_t j = threadIdx.x; j < columns; j += 256) total += row[j];
    total = warp_sum(total);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = total;
    __syncthreads();
    if (threadIdx.x < 32) {
        total = warp_sum(threadIdx.x < 8 ? part[threadIdx.x] : 0.0f);
        if (threadIdx.x == 0) out[blockIdx.x] = total;
    }
}
extern "C" int sum(const float *x, float *out, int64_t M, int64_t N, void *stream) {
    if (M) sum_kernel<<<(unsigned)M, 256, 0, (cudaStream_t)stream>>>(x, out, N);
    return 0;
}
