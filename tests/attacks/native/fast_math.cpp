// specimen: class=dropped_nan task=amax device=cpu stage=correctness reason=wrong_output
// kerneleval-flags: -ffast-math
// Compiled as if there were neither NaN nor infinities.
#include <cstdint>
extern "C" int amax(const float *x, float *out, int64_t M, int64_t N, void *) {
    for (int64_t i = 0; i < M; i++) {
        float top = x[i * N];
        for (int64_t j = 1; j < N; j++) top = x[i * N + j] > top ? x[i * N + j] : top;
        out[i] = top;
    }
    return 0;
}
