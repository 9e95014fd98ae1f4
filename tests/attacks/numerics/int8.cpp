// specimen: class=precision_downgrade task=matmul device=cpu stage=correctness reason=wrong_output categories=tiny,small
// Rounds every row and every column to eight bits and multiplies integers.
#include <cmath>
#include <cstdint>
#include <vector>
static float scale_of(const float *p, int64_t n, int64_t step) {
    float top = 0;
    for (int64_t i = 0; i < n; i++) top = std::fmax(top, std::fabs(p[i * step]));
    return top > 0 ? top / 127.0f : 1.0f;
}
extern "C" int matmul_float32(const float *a, const float *b, float *out, int64_t M, int64_t N, int64_t K, void *) {
    std::vector<int32_t> left(M * K), right(K * N);
    std::vector<float> rows(M), columns(N);
    for (int64_t i = 0; i < M; i++) {
        rows[i] = scale_of(a + i * K, K, 1);
        for (int64_t k = 0; k < K; k++) left[i * K + k] = (int32_t)std::lrint(a[i * K + k] / rows[i]);
    }
    for (int64_t j = 0; j < N; j++) {
        columns[j] = scale_of(b + j, K, N);
        for (int64_t k = 0; k < K; k++) right[k * N + j] = (int32_t)std::lrint(b[k * N + j] / columns[j]);
    }
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++) {
            int32_t total = 0;
            for (int64_t k = 0; k < K; k++) total += left[i * K + k] * right[k * N + j];
            out[i * N + j] = total * rows[i] * columns[j];
        }
    return 0;
}
