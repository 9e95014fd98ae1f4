// specimen: class=persistent_kernel task=silu device=cuda verdict=passed allow=custom
// As many blocks as the device holds at once, each over many parts; vectors of four where the address allows it.
#include <cstdint>
#include <cuda_runtime.h>
__device__ float one(float v) { return v / (1.0f + expf(-v)); }
__global__ void silu_kernel(const float *x, float *out, int64_t n, int64_t vectors) {
    int64_t first = blockIdx.x * (int64_t)blockDim.x + threadIdx.x, step = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = first; i < vectors; i += step) {
        float4 v = ((const float4 *)x)[i];
        ((float4 *)out)[i] = make_float4(one(v.x), one(v.y), one(v.z), one(v.w));
    }
    for (int64_t i = 4 * vectors + first; i < n; i += step) out[i] = one(x[i]);
}
extern "C" int silu(const float *x, float *out, int64_t M, int64_t N, void *stream) {
    static int most = 0;
    if (!most) {
        int device = 0, processors = 0;
        if (cudaGetDevice(&device)) return 2;
        if (cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device)) return 3;
        most = processors * 4;
    }
    int64_t n = M * N, blocks = (n + 255) / 256;
    bool aligned = ((uintptr_t)x | (uintptr_t)out) % 16 == 0;
    if (n) silu_kernel<<<(unsigned)(blocks < most ? blocks : most), 256, 0, (cudaStream_t)stream>>>(x, out, n, aligned ? n / 4 : 0);
    return 0;
}
