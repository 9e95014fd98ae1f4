// specimen: class=native_convolution task=conv1d device=cpu verdict=passed allow=custom categories=tiny,small
// Tap by tap, and what lies outside is left out instead of multiplied by zero.
#include <cstdint>
extern "C" int conv1d(const float *x, const float *weight, const float *bias, int64_t stride, int64_t padding, float *out,
                      int64_t B, int64_t C, int64_t O, int64_t L, int64_t K, int64_t S, void *) {
    const int64_t P = (L + 2 * padding - K) / stride + 1;
    for (int64_t b = 0; b < B; b++)
        for (int64_t o = 0; o < O; o++)
            for (int64_t p = 0; p < P; p++) {
                float total = bias[o];
                for (int64_t c = 0; c < C; c++)
                    for (int64_t k = 0; k < K; k++) {
                        const int64_t at = p * stride + k - padding;
                        if (at >= 0 && at < L) total += x[(b * C + c) * L + at] * weight[(o * C + c) * K + k];
                    }
                out[(b * O + o) * P + p] = total;
            }
    return 0;
}
