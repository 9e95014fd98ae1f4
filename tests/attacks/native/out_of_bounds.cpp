// specimen: class=stray_writes task=gelu device=cpu stage=honesty reason=input_mutation
// Writes just in front of its input, where a neighbour of it may lie.
#include <cmath>
#include <cstdint>
extern "C" int gelu(float *x, float *out, int64_t M, int64_t N, void *) {
    for (int64_t i = 0; i < M * N; i++) out[i] = 0.5f * x[i] * (1.0f + std::erf(x[i] * 0.70710678118654752f));
    for (int64_t i = M * N; i % 128; i++) x[i] = 1.0f;
    return 0;
}
