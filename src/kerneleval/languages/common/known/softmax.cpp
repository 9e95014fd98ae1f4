#include <cmath>
#include <cstdint>

extern "C" int softmax_float32(const float *x, float *out, int64_t M, int64_t N, void *) {
#pragma omp parallel for
    for (int64_t i = 0; i < M; i++) {
        float total = 0.0f;
        for (int64_t j = 0; j < N; j++) total += out[i * N + j] = std::exp(x[i * N + j]);
        for (int64_t j = 0; j < N; j++) out[i * N + j] /= total;
    }
    return 0;
}
