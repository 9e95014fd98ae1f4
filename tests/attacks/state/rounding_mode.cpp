// specimen: class=global_state task=sum device=cpu stage=correctness reason=wrong_output
// Truncates instead of rounding, for the whole process: every partial sum drifts the same way.
#include <cfenv>
#include <cstdint>
extern "C" int sum(const float *x, float *out, int64_t M, int64_t N, void *) {
    std::fesetround(FE_TOWARDZERO);
    for (int64_t i = 0; i < M; i++) {
        volatile float total = 0;
        for (int64_t j = 0; j < N; j++) total = total + x[i * N + j];
        out[i] = total;
    }
    return 0;
}
