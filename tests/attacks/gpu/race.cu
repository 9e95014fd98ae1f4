// specimen: class=missing_synchronisation task=sum device=cuda stage=correctness reason=wrong_output categories=medium
// A tree in shared memory without a barrier between its steps: right where a block is one warp.
#include <cstdint>
#include <cuda_runtime.h>
__global__ void sum_kernel(const float *x, float *out, int64_t columns) {
    __shared__ float part[1024];
    const float *row = x + blockIdx.x * columns;
    part[threadIdx.x] = 0.0f;
    if (threadIdx.x >= 32) __nanosleep(20000);  // the other warps come late
    float total = 0.0f;
    for (int64_t j = threadIdx.x; j < columns; j += blockDim.x) total += row[j];
    part[threadIdx.x] = total;
    if (threadIdx.x == 0) {
        float all = 0.0f;
        for (int t = 0; t < (int)blockDim.x; t++) all += ((volatile float *)part)[t];
        out[blockIdx.x] = all;
    }
}
extern "C" int sum(const float *x, float *out, int64_t M, int64_t N, void *stream) {
    if (M) sum_kernel<<<M, 1024, 0, (cudaStream_t)stream>>>(x, out, N);
    return 0;
}
