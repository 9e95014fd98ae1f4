// specimen: class=narrow_offsets task=sum_integers device=cpu stage=correctness reason=wrong_output tier=standard dtypes=int8 categories=tiny,small
// Counts the elements in 32 bits, which are fewer than none from 2^31 on.
#include <cstdint>
#include <cstring>

extern "C" int sum_integers_int8(const int8_t *x, int64_t *out, int64_t M, int64_t N, void *) {
    const int32_t count = int32_t(uint32_t(M) * uint32_t(N));
    std::memset(out, 0, sizeof(int64_t) * M);
    for (int32_t at = 0; at < count; ++at) out[at / N] += x[at];
    return 0;
}
