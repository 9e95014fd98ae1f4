// specimen: class=coarse_approximation task=exp device=cpu stage=correctness reason=wrong_output
// Writes the exponent's bits and a parabola: right to a thousandth.
#include <cmath>
#include <cstdint>
#include <cstring>
extern "C" int exp_float32(const float *x, float *out, int64_t M, int64_t N, void *) {
    for (int64_t i = 0; i < M * N; i++) {
        if (!(x[i] > -87.0f && x[i] < 88.0f)) { out[i] = std::exp(x[i]); continue; }
        float t = x[i] * 1.442695041f, whole = std::floor(t), part = t - whole;
        int32_t bits = ((int32_t)whole + 127) << 23;
        float power;
        std::memcpy(&power, &bits, 4);
        out[i] = power * (1.0f + part * (0.6565f + 0.3435f * part));
    }
    return 0;
}
