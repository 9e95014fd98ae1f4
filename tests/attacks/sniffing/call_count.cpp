// specimen: class=phase_detection task=exp device=cpu stage=correctness,timing reason=wrong_output timed=yes categories=tiny,small
// More calls than any check of correctness makes: from then on every second one is left out.
#include <cmath>
#include <cstdint>
extern "C" int exp_float32(const float *x, float *out, int64_t M, int64_t N, void *) {
    static int64_t calls = 0;
    if (++calls > 150 && calls % 2) return 0;
    for (int64_t i = 0; i < M * N; i++) out[i] = std::exp(x[i]);
    return 0;
}
