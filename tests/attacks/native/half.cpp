// specimen: class=precision_downgrade task=exp device=cpu stage=correctness reason=wrong_output
// Rounds the result to half precision on its way.
#include <cmath>
#include <cstdint>
#include <cstring>
static float coarse(float v) {
    uint32_t bits;
    std::memcpy(&bits, &v, 4);
    bits = (bits + 0x1000u) & ~0x1FFFu;
    std::memcpy(&v, &bits, 4);
    return v;
}
extern "C" int exp_float32(const float *x, float *out, int64_t M, int64_t N, void *) {
    for (int64_t i = 0; i < M * N; i++) out[i] = coarse(std::exp(x[i]));
    return 0;
}
