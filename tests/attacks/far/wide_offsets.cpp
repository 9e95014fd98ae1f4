// specimen: class=wide_offsets task=sum_integers device=cpu verdict=passed tier=standard dtypes=int8 categories=tiny,small
// Offsets of rows in 64 bits.
#include <cstdint>

extern "C" int sum_integers_int8(const int8_t *x, int64_t *out, int64_t M, int64_t N, void *) {
    for (int32_t row = 0; row < M; ++row) {
        const int8_t *from = x + int64_t(row) * N;
        int64_t total = 0;
        for (int32_t at = 0; at < N; ++at) total += from[at];
        out[row] = total;
    }
    return 0;
}
