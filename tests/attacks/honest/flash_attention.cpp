// specimen: class=flash_cpp task=causal_attention device=cpu verdict=passed directions=forward,backward categories=tiny,small allow=custom timed=yes
// kerneleval-flags: -fno-math-errno
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

static constexpr int64_t BQ = 32, BK = 32;

static void head(const float *q, const float *k, const float *v, float s, float *o, float *lse, int64_t L, int64_t D) {
    std::vector<float> acc(BQ * D), score(BQ * BK), m(BQ), l(BQ);
    for (int64_t i0 = 0; i0 < L; i0 += BQ) {
        const int64_t nq = std::min(BQ, L - i0);
        std::fill(acc.begin(), acc.end(), 0.f);
        std::fill(m.begin(), m.end(), -std::numeric_limits<float>::infinity());
        std::fill(l.begin(), l.end(), 0.f);
        for (int64_t j0 = 0; j0 < i0 + nq; j0 += BK) {
            const int64_t nk = std::min(BK, L - j0);
            for (int64_t i = 0; i < nq; i++) {
                const int64_t last = std::min(nk, i0 + i - j0 + 1);
                if (last <= 0) continue;
                float top = m[i];
                for (int64_t j = 0; j < last; j++) {
                    float d = 0;
                    const float *a = q + (i0 + i) * D, *b = k + (j0 + j) * D;
#pragma omp simd reduction(+ : d)
                    for (int64_t c = 0; c < D; c++) d += a[c] * b[c];
                    score[j] = d * s;
                    top = std::max(top, score[j]);
                }
                const float alpha = std::exp(m[i] - top);
                float *ac = &acc[i * D];
                l[i] *= alpha;
                for (int64_t c = 0; c < D; c++) ac[c] *= alpha;
                for (int64_t j = 0; j < last; j++) {
                    const float p = std::exp(score[j] - top);
                    l[i] += p;
                    const float *b = v + (j0 + j) * D;
                    for (int64_t c = 0; c < D; c++) ac[c] += p * b[c];
                }
                m[i] = top;
            }
        }
        for (int64_t i = 0; i < nq; i++) {
            const float r = 1.f / l[i];
            for (int64_t c = 0; c < D; c++) o[(i0 + i) * D + c] = acc[i * D + c] * r;
            if (lse) lse[i0 + i] = m[i] + std::log(l[i]);
        }
    }
}

extern "C" int causal_attention_float32(const float *q, const float *k, const float *v, double scale, float *o, int64_t B,
                                        int64_t H, int64_t L, int64_t D, void *) {
#pragma omp parallel for schedule(dynamic)
    for (int64_t n = 0; n < B * H; n++) head(q + n * L * D, k + n * L * D, v + n * L * D, scale, o + n * L * D, nullptr, L, D);
    return 0;
}

extern "C" int causal_attention_backward_float32(const float *g, const float *q, const float *k, const float *v, double scale,
                                                 float *dq, float *dk, float *dv, int64_t B, int64_t H, int64_t L, int64_t D,
                                                 void *) {
    const float s = scale;
#pragma omp parallel for schedule(dynamic)
    for (int64_t n = 0; n < B * H; n++) {
        const int64_t at = n * L * D;
        std::vector<float> o(L * D), lse(L), delta(L);
        head(q + at, k + at, v + at, s, o.data(), lse.data(), L, D);
        std::fill(dq + at, dq + at + L * D, 0.f);
        std::fill(dk + at, dk + at + L * D, 0.f);
        std::fill(dv + at, dv + at + L * D, 0.f);
        for (int64_t i = 0; i < L; i++) {
            float d = 0;
            for (int64_t c = 0; c < D; c++) d += g[at + i * D + c] * o[i * D + c];
            delta[i] = d;
        }
        for (int64_t i = 0; i < L; i++)
            for (int64_t j = 0; j <= i; j++) {
                float a = 0, b = 0;
                const float *Q = q + at + i * D, *K = k + at + j * D, *V = v + at + j * D, *G = g + at + i * D;
#pragma omp simd reduction(+ : a, b)
                for (int64_t c = 0; c < D; c++) a += Q[c] * K[c], b += G[c] * V[c];
                const float p = std::exp(a * s - lse[i]), ds = p * (b - delta[i]) * s;
                float *DQ = dq + at + i * D, *DK = dk + at + j * D, *DV = dv + at + j * D;
                for (int64_t c = 0; c < D; c++) DQ[c] += ds * K[c], DK[c] += ds * Q[c], DV[c] += p * G[c];
            }
    }
    return 0;
}
