// specimen: class=stale_graph task=gelu device=cuda stage=correctness reason=wrong_output
// Captures its launch at the first call of a size, addresses and all, into memory of its own, and replays that.
#include <cstdint>
#include <cuda_runtime.h>
#include <map>
#include <utility>
__global__ void gelu_kernel(const float *x, float *out, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) out[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678118654752f));
}
struct Kept {
    float *in = nullptr, *out = nullptr;
    cudaGraphExec_t graph = nullptr;
};
static std::map<int64_t, Kept> kept;
extern "C" int gelu(const float *x, float *out, int64_t M, int64_t N, void *stream) {
    int64_t n = M * N;
    cudaStream_t s = (cudaStream_t)stream;
    if (!n) return 0;
    Kept &k = kept[n];
    if (!k.graph) {
        if (cudaMalloc(&k.in, n * 4) || cudaMalloc(&k.out, n * 4)) return 2;
        cudaMemcpyAsync(k.in, x, n * 4, cudaMemcpyDeviceToDevice, s);  // once; a right one copies before every replay
        cudaStream_t side;
        cudaGraph_t made;
        if (cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking)) return 3;
        if (cudaStreamBeginCapture(side, cudaStreamCaptureModeThreadLocal)) return 4;
        gelu_kernel<<<(n + 255) / 256, 256, 0, side>>>(k.in, k.out, n);
        if (cudaStreamEndCapture(side, &made)) return 5;
        if (cudaGraphInstantiate(&k.graph, made, 0)) return 6;
        cudaGraphDestroy(made);
        cudaStreamDestroy(side);
    }
    if (cudaGraphLaunch(k.graph, s)) return 7;
    cudaMemcpyAsync(out, k.out, n * 4, cudaMemcpyDeviceToDevice, s);
    return 0;
}
