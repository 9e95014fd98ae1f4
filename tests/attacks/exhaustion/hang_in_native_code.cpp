// specimen: class=hang task=gelu device=cpu stage=call reason=timeout
// An endless loop in native code.
#include <cstdint>

extern "C" int gelu_float32(const float *x, float *out, int64_t M, int64_t N, void *) {
    for (volatile int64_t i = 0;; i = i + 1) out[i % (M * N)] = x[i % (M * N)];
}
