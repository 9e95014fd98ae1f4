// specimen: class=running_sums task=group_norm device=cpu verdict=passed directions=forward,backward categories=tiny,small allow=custom
#include <cmath>
#include <cstdint>
// Textbook: two passes, one running fp32 sum over the group.
static void moments(const float *x, int64_t n, float eps, float &m, float &r) {
    float s = 0, q = 0;
    for (int64_t i = 0; i < n; i++) s += x[i];
    m = s / n;
    for (int64_t i = 0; i < n; i++) q += (x[i] - m) * (x[i] - m);
    r = 1.f / std::sqrt(q / n + eps);
}
extern "C" int group_norm_float32(const float *x, const float *w, const float *b, int64_t groups, double eps, float *o, int64_t B, int64_t G, int64_t C, int64_t L, void *) {
#pragma omp parallel for
    for (int64_t bg = 0; bg < B * G; bg++) {
        const float *X = x + bg * C * L;
        float m, r;
        moments(X, C * L, eps, m, r);
        for (int64_t c = 0; c < C; c++)
            for (int64_t l = 0; l < L; l++) o[bg * C * L + c * L + l] = (X[c * L + l] - m) * r * w[bg % G * C + c] + b[bg % G * C + c];
    }
    return 0;
}
extern "C" int group_norm_backward_float32(const float *g, const float *x, const float *w, const float *, int64_t groups, double eps, float *dx, float *dw, float *db, int64_t B, int64_t G, int64_t C, int64_t L, void *) {
#pragma omp parallel for
    for (int64_t k = 0; k < G; k++) {
        for (int64_t c = 0; c < C; c++) dw[k * C + c] = db[k * C + c] = 0;
        for (int64_t b = 0; b < B; b++) {
            const int64_t at = (b * G + k) * C * L;
            const float n = C * L;
            float m, r, p = 0, q = 0;
            moments(x + at, C * L, eps, m, r);
            for (int64_t c = 0; c < C; c++)
                for (int64_t l = 0; l < L; l++) {
                    const float t = g[at + c * L + l], h = (x[at + c * L + l] - m) * r;
                    dw[k * C + c] += t * h, db[k * C + c] += t;
                    p += t * w[k * C + c], q += t * w[k * C + c] * h;
                }
            for (int64_t c = 0; c < C; c++)
                for (int64_t l = 0; l < L; l++) {
                    const float h = (x[at + c * L + l] - m) * r;
                    dx[at + c * L + l] = r * (g[at + c * L + l] * w[k * C + c] - p / n - h * q / n);
                }
        }
    }
    return 0;
}
