// A worked example of prompts; the lines above the first empty one are not shown.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

constexpr int THREADS = 256;

__device__ float wide(float x) { return x; }
__device__ float wide(__half x) { return __half2float(x); }
__device__ float wide(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ void put(float *to, float x) { *to = x; }
__device__ void put(__half *to, float x) { *to = __float2half(x); }
__device__ void put(__nv_bfloat16 *to, float x) { *to = __float2bfloat16(x); }

struct Sum {
    static constexpr float none = 0.0f;
    __device__ static float of(float a, float b) { return a + b; }
};
struct Largest {
    static constexpr float none = -3.402823466e38f;
    __device__ static float of(float a, float b) { return fmaxf(a, b); }
};

// Over all threads of the block; every thread gets the result.
template <class Op> __device__ float over_block(float x) {
    __shared__ float parts[THREADS];
    for (int lanes = 32 / 2; lanes; lanes /= 2) x = Op::of(x, __shfl_xor_sync(0xffffffff, x, lanes));
    const int warps = THREADS / 32;
    __syncthreads();  // parts may still be read from the call before
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    x = parts[0];
    for (int i = 1; i < warps; i++) x = Op::of(x, parts[i]);
    return x;
}

// One block a row.
template <class T> __global__ void forward(const T *x, T *out, int64_t N) {
    x += blockIdx.x * N;
    out += blockIdx.x * N;
    float largest = Largest::none, total = 0.0f;
    for (int64_t j = threadIdx.x; j < N; j += THREADS) largest = fmaxf(largest, wide(x[j]));
    largest = over_block<Largest>(largest);
    for (int64_t j = threadIdx.x; j < N; j += THREADS) total += expf(wide(x[j]) - largest);
    total = over_block<Sum>(total);
    for (int64_t j = threadIdx.x; j < N; j += THREADS) put(out + j, expf(wide(x[j]) - largest) / total);
}

template <class T> __global__ void backward(const T *grad, const T *x, T *out, int64_t N) {
    grad += blockIdx.x * N;
    x += blockIdx.x * N;
    out += blockIdx.x * N;
    float largest = Largest::none, total = 0.0f, inner = 0.0f;
    for (int64_t j = threadIdx.x; j < N; j += THREADS) largest = fmaxf(largest, wide(x[j]));
    largest = over_block<Largest>(largest);
    for (int64_t j = threadIdx.x; j < N; j += THREADS) total += expf(wide(x[j]) - largest);
    total = over_block<Sum>(total);
    for (int64_t j = threadIdx.x; j < N; j += THREADS) inner += wide(grad[j]) * (expf(wide(x[j]) - largest) / total);
    inner = over_block<Sum>(inner);
    for (int64_t j = threadIdx.x; j < N; j += THREADS)
        put(out + j, expf(wide(x[j]) - largest) / total * (wide(grad[j]) - inner));
}

template <class T> static int launch(const T *x, T *out, int64_t M, int64_t N, void *stream) {
    if (M && N) forward<<<M, THREADS, 0, (cudaStream_t)stream>>>(x, out, N);
    return cudaGetLastError() == cudaSuccess ? 0 : 2;
}

template <class T> static int launch(const T *grad, const T *x, T *out, int64_t M, int64_t N, void *stream) {
    if (M && N) backward<<<M, THREADS, 0, (cudaStream_t)stream>>>(grad, x, out, N);
    return cudaGetLastError() == cudaSuccess ? 0 : 2;
}

extern "C" int softmax_float32(const float *x, float *out, int64_t M, int64_t N, void *stream) {
    return launch(x, out, M, N, stream);
}

extern "C" int softmax_float16(const __half *x, __half *out, int64_t M, int64_t N, void *stream) {
    return launch(x, out, M, N, stream);
}

extern "C" int softmax_bfloat16(const __nv_bfloat16 *x, __nv_bfloat16 *out, int64_t M, int64_t N, void *stream) {
    return launch(x, out, M, N, stream);
}

extern "C" int softmax_backward_float32(const float *grad_out, const float *x, float *grad_x, int64_t M, int64_t N,
                                        void *stream) {
    return launch(grad_out, x, grad_x, M, N, stream);
}

extern "C" int softmax_backward_float16(const __half *grad_out, const __half *x, __half *grad_x, int64_t M, int64_t N,
                                        void *stream) {
    return launch(grad_out, x, grad_x, M, N, stream);
}

extern "C" int softmax_backward_bfloat16(const __nv_bfloat16 *grad_out, const __nv_bfloat16 *x, __nv_bfloat16 *grad_x,
                                         int64_t M, int64_t N, void *stream) {
    return launch(grad_out, x, grad_x, M, N, stream);
}
