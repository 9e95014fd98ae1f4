// specimen: class=cache_by_pointer task=gelu device=cpu stage=correctness reason=wrong_output
#include <cmath>
#include <cstdint>
#include <map>
#include <vector>
static std::map<const float *, std::vector<float>> kept;
extern "C" int gelu(const float *x, float *out, int64_t M, int64_t N, void *) {
    auto &old = kept[x];
    if ((int64_t)old.size() != M * N) {
        old.resize(M * N);
        for (int64_t i = 0; i < M * N; i++) old[i] = 0.5f * x[i] * (1.0f + std::erf(x[i] * 0.70710678118654752f));
    }
    for (int64_t i = 0; i < M * N; i++) out[i] = old[i];
    return 0;
}
