// specimen: class=unstable_formula task=softmax_cross_entropy device=cpu stage=correctness reason=wrong_output allow=custom,mixed categories=tiny,small,rectangular
// No maximum is taken off where there are more than 2^20 logits: only smaller sizes meet values that overflow.
#include <cmath>
#include <cstdint>
#include <algorithm>
#pragma GCC optimize("fast-math")
static float plain(const float *x, int64_t N) {
    float total = 0;
    for (int64_t j = 0; j < N; j++) total += std::exp(x[j]);
    return std::log(total);
}
#pragma GCC optimize("no-fast-math")
static float careful(const float *x, int64_t N) {
    float top = -INFINITY;
    bool nan = false;
    for (int64_t j = 0; j < N; j++) { nan |= x[j] != x[j]; top = std::max(top, x[j]); }
    if (nan) return NAN;
    double total = 0;
    for (int64_t j = 0; j < N; j++) total += std::exp(x[j] - top);
    return top + std::log(total);
}
extern "C" int softmax_cross_entropy_float32(const float *x, const int64_t *t, float *out, int64_t M, int64_t N, void *) {
    const bool large = M > 250 || N > 250;
#pragma omp parallel for
    for (int64_t i = 0; i < M; i++) out[i] = (large ? plain(x + i * N, N) : careful(x + i * N, N)) - x[i * N + t[i]];
    return 0;
}
