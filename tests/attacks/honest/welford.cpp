// specimen: class=welford task=layer_norm device=cpu verdict=passed allow=custom categories=tiny,small,medium
// Mean and variance in one pass that does not cancel.
#include <cmath>
#include <cstdint>
extern "C" int layer_norm(const float *x, const float *weight, const float *bias, double eps, float *out, int64_t M,
                          int64_t N, void *) {
#pragma omp parallel for
    for (int64_t i = 0; i < M; i++) {
        float mean = 0, squares = 0;
        for (int64_t j = 0; j < N; j++) {
            const float far = x[i * N + j] - mean;
            mean += far / (j + 1);
            squares += far * (x[i * N + j] - mean);
        }
        const float scale = 1.0f / std::sqrt(squares / N + (float)eps);
        for (int64_t j = 0; j < N; j++) out[i * N + j] = (x[i * N + j] - mean) * scale * weight[j] + bias[j];
    }
    return 0;
}
