// specimen: class=blocked task=matmul device=cpu verdict=passed allow=custom categories=tiny,small,medium
// Blocks that stay in the cache, rows shared out among threads; a fast path for a single column.
#include <algorithm>
#include <cstdint>
extern "C" int matmul_float32(const float *a, const float *b, float *out, int64_t M, int64_t N, int64_t K, void *) {
    if (N == 1) {
        for (int64_t i = 0; i < M; i++) {
            float total = 0;
            for (int64_t k = 0; k < K; k++) total += a[i * K + k] * b[k];
            out[i] = total;
        }
        return 0;
    }
    std::fill(out, out + M * N, 0.0f);
    const int64_t B = 64;
#pragma omp parallel for schedule(static)
    for (int64_t i0 = 0; i0 < M; i0 += B)
        for (int64_t k0 = 0; k0 < K; k0 += B)
            for (int64_t i = i0; i < std::min(i0 + B, M); i++)
                for (int64_t k = k0; k < std::min(k0 + B, K); k++) {
                    const float v = a[i * K + k];
                    for (int64_t j = 0; j < N; j++) out[i * N + j] += v * b[k * N + j];
                }
    return 0;
}
