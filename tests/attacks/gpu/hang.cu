// specimen: class=hang task=silu device=cuda stage=call reason=timeout categories=tiny,small
// A kernel without an end.
#include <cstdint>
#include <cuda_runtime.h>
__global__ void silu_kernel(const volatile float *x, volatile float *out) {
    for (;;) out[0] = x[0];
}
extern "C" int silu(const float *x, float *out, int64_t M, int64_t N, void *stream) {
    if (M * N) silu_kernel<<<1, 1, 0, (cudaStream_t)stream>>>(x, out);
    return 0;
}
