// specimen: class=tiled task=matmul device=cuda verdict=passed allow=custom categories=tiny,small,medium
// Tiles of 16 in shared memory, zeros beyond the edges.
#include <cstdint>
#include <cuda_runtime.h>
__global__ void product(const float *a, const float *b, float *out, int64_t M, int64_t N, int64_t K) {
    __shared__ float left[16][16], right[16][16];
    int64_t row = blockIdx.y * 16 + threadIdx.y, column = blockIdx.x * 16 + threadIdx.x;
    float total = 0.0f;
    for (int64_t start = 0; start < K; start += 16) {
        int64_t k = start + threadIdx.x, l = start + threadIdx.y;
        left[threadIdx.y][threadIdx.x] = row < M && k < K ? a[row * K + k] : 0.0f;
        right[threadIdx.y][threadIdx.x] = l < K && column < N ? b[l * N + column] : 0.0f;
        __syncthreads();
        for (int i = 0; i < 16; i++) total += left[threadIdx.y][i] * right[i][threadIdx.x];
        __syncthreads();
    }
    if (row < M && column < N) out[row * N + column] = total;
}
extern "C" int matmul_float32(const float *a, const float *b, float *out, int64_t M, int64_t N, int64_t K, void *stream) {
    if (M && N) {
        dim3 grid((unsigned)((N + 15) / 16), (unsigned)((M + 15) / 16)), block(16, 16);
        product<<<grid, block, 0, (cudaStream_t)stream>>>(a, b, out, M, N, K);
    }
    return 0;
}
