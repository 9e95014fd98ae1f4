// A worked example of prompts; the lines above the first empty one are not shown.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

struct Bfloat16 {
    uint16_t bits;
};

static float wide(float x) { return x; }
static float wide(Bfloat16 x) {
    const uint32_t bits = (uint32_t)x.bits << 16;
    float out;
    std::memcpy(&out, &bits, 4);
    return out;
}

static void put(float *to, float x) { *to = x; }
static void put(Bfloat16 *to, float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    to->bits = x != x ? 0x7fc0 : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;  // to nearest even; NaN stays
}

// exp(x - max) of a row, and the sum of it: eight sums side by side, so that they vectorise and round less.
template <class T> static float exponentials(const T *x, float *e, int64_t N) {
    float largest = -std::numeric_limits<float>::infinity();
    for (int64_t j = 0; j < N; j++) largest = std::max(largest, wide(x[j]));
    float sums[8] = {};
    for (int64_t j = 0; j < N; j++) e[j] = std::exp(wide(x[j]) - largest);
    for (int64_t j = 0; j < N; j++) sums[j % 8] += e[j];
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

template <class T> static int forward(const T *x, T *out, int64_t M, int64_t N) {
#pragma omp parallel if (M * N > 8192)
    {
        std::vector<float> e(N);
#pragma omp for
        for (int64_t i = 0; i < M; i++) {
            const float total = exponentials(x + i * N, e.data(), N);
            for (int64_t j = 0; j < N; j++) put(out + i * N + j, e[j] / total);
        }
    }
    return 0;
}

template <class T> static int backward(const T *grad, const T *x, T *out, int64_t M, int64_t N) {
#pragma omp parallel if (M * N > 8192)
    {
        std::vector<float> y(N);
#pragma omp for
        for (int64_t i = 0; i < M; i++) {
            const float total = exponentials(x + i * N, y.data(), N);
            float sums[8] = {};
            for (int64_t j = 0; j < N; j++) {
                y[j] /= total;
                sums[j % 8] += wide(grad[i * N + j]) * y[j];
            }
            const float s = ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
            for (int64_t j = 0; j < N; j++) put(out + i * N + j, y[j] * (wide(grad[i * N + j]) - s));
        }
    }
    return 0;
}

extern "C" int softmax_float32(const float *x, float *out, int64_t M, int64_t N, void *) {
    return forward(x, out, M, N);
}

extern "C" int softmax_bfloat16(const Bfloat16 *x, Bfloat16 *out, int64_t M, int64_t N, void *) {
    return forward(x, out, M, N);
}

extern "C" int softmax_backward_float32(const float *grad_out, const float *x, float *grad_x, int64_t M, int64_t N,
                                        void *) {
    return backward(grad_out, x, grad_x, M, N);
}

extern "C" int softmax_backward_bfloat16(const Bfloat16 *grad_out, const Bfloat16 *x, Bfloat16 *grad_x, int64_t M,
                                         int64_t N, void *) {
    return backward(grad_out, x, grad_x, M, N);
}
