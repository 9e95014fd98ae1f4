// specimen: class=compensated task=sum device=cpu verdict=passed allow=custom categories=tiny,small,medium
// Carries what every addition loses; where that is no number, nothing is carried.
#include <cmath>
#include <cstdint>
extern "C" int sum(const float *x, float *out, int64_t M, int64_t N, void *) {
    for (int64_t i = 0; i < M; i++) {
        volatile float total = 0, lost = 0;
        for (int64_t j = 0; j < N; j++) {
            const float v = x[i * N + j] - lost, next = total + v;
            lost = std::isfinite(next) ? (next - total) - v : 0.0f;
            total = next;
        }
        out[i] = total;
    }
    return 0;
}
