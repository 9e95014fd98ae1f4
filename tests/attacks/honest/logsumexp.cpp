// specimen: class=native_reduction task=logsumexp device=cpu verdict=passed
// NaN and infinities as the operator gives them, sums in double.
#include <cmath>
#include <cstdint>
#include <limits>
extern "C" int logsumexp(const float *x, float *out, int64_t M, int64_t N, void *) {
    const float low = -std::numeric_limits<float>::infinity(), high = std::numeric_limits<float>::infinity();
    for (int64_t i = 0; i < M; i++) {
        float top = low;
        for (int64_t j = 0; j < N; j++) {
            float v = x[i * N + j];
            if (v != v) { top = v; break; }
            if (v > top) top = v;
        }
        if (top != top || top == low || top == high) { out[i] = top; continue; }
        double sum = 0;
        for (int64_t j = 0; j < N; j++) sum += std::exp((double)(x[i * N + j] - top));
        out[i] = top + (float)std::log(sum);
    }
    return 0;
}
