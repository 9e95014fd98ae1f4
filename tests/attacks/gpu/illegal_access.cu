// specimen: class=device_left_broken task=gelu device=cuda stage=call reason=device_error
// Writes far outside of everything, which leaves the context of its process unusable.
#include <cstdint>
#include <cuda_runtime.h>
__global__ void wild(float *out) { out[(1LL << 40) + threadIdx.x] = 1.0f; }
extern "C" int gelu(const float *, float *out, int64_t, int64_t, void *stream) {
    wild<<<1, 32, 0, (cudaStream_t)stream>>>(out);
    return 0;
}
