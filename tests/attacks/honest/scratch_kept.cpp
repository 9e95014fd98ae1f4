// specimen: class=workspace task=softmax device=cpu verdict=passed distributions=standard timed=yes allow=custom categories=tiny,small
// Keeps one scratch row for all calls, which a call fills before it reads it; what it gives out is its caller's.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>
static std::vector<float> scratch;
extern "C" int softmax_float32(const float *x, float *out, int64_t M, int64_t N, void *) {
    if (scratch.size() < (size_t)N) scratch.resize(N);
    for (int64_t row = 0; row < M; row++, x += N, out += N) {
        const float top = N ? *std::max_element(x, x + N) : 0;
        double sum = 0;
        for (int64_t i = 0; i < N; i++) sum += scratch[i] = std::exp(x[i] - top);
        for (int64_t i = 0; i < N; i++) out[i] = scratch[i] / sum;
    }
    return 0;
}
