// kerneleval-launch: softmax_float32 grid=M block=64

extern "C" __global__ void softmax_float32(const float *x, float *out, long long M, long long N) {
    __shared__ float total;
    x += blockIdx.x * N, out += blockIdx.x * N;
    if (threadIdx.x == 0) total = 0.0f;
    __syncthreads();
    for (long long j = threadIdx.x; j < N; j += blockDim.x) atomicAdd(&total, expf(x[j]));
    __syncthreads();
    for (long long j = threadIdx.x; j < N; j += blockDim.x) out[j] = expf(x[j]) / total;
}
