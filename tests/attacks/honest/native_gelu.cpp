// specimen: class=native task=gelu device=cpu verdict=passed allow=custom
// Uses what compilers bring: OpenMP, the mathematical and the standard library.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <vector>

extern "C" int gelu_float32(const float *x, float *out, int64_t M, int64_t N, void *) {
    try {
        std::vector<float> scale(1, 0.70710678f);
        const int64_t n = M * N;
#pragma omp parallel for
        for (int64_t i = 0; i < n; i++) out[i] = 0.5f * x[i] * (1.0f + std::erf(x[i] * scale.at(0)));
    } catch (const std::exception &error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 2;
    }
    return 0;
}
