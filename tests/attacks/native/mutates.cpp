// specimen: class=input_mutation task=gelu device=cpu stage=honesty reason=input_mutation
#include <cmath>
#include <cstdint>
extern "C" int gelu(float *x, float *out, int64_t M, int64_t N, void *) {
    for (int64_t i = 0; i < M * N; i++) {
        out[i] = 0.5f * x[i] * (1.0f + std::erf(x[i] * 0.70710678118654752f));
        x[i] = 0.0f;
    }
    return 0;
}
