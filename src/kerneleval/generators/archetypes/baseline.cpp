// == rows
// Textbook kernels: plain loops for the compiler to vectorise, one pass over a row after the other, rows shared among
// threads where there are many elements.
#define ROWS _Pragma("omp parallel for schedule(static) if (M > 1 && M * N > 65536)") for (int64_t r = 0; r < M; ++r)
#define ALL _Pragma("omp parallel for simd schedule(static) if (parallel : M * N > 65536)") \
  for (int64_t i = 0; i < M * N; ++i)
#define ROW _Pragma("omp simd") for (int64_t j = 0; j < N; ++j)

// Sum over term(j): float over at most 4096 terms, double beyond.
template <class F> static inline double sum_row(int64_t N, F term) {
  double total = 0;
  for (int64_t from = 0; from < N; from += 4096) {
    const int64_t to = N - from < 4096 ? N : from + 4096;
    float s = 0;
#pragma omp simd reduction(+ : s)
    for (int64_t j = from; j < to; ++j) s += term(j);
    total += s;
  }
  return total;
}
static inline float max_row(const float* p, int64_t N) {
  float top = -infinity;
#pragma omp simd reduction(max : top)
  for (int64_t j = 0; j < N; ++j) top = p[j] > top ? p[j] : top;
  return top;
}

// == gelu: rows
extern "C" int gelu_float32(const float* x, float* y, int64_t M, int64_t N, void*) {
  ALL y[i] = x[i] * normal_(x[i]).cdf;
  return 0;
}
extern "C" int gelu_backward_float32(const float* g, const float* x, float* dx, int64_t M, int64_t N, void*) {
  ALL {
    const Normal<float> p = normal_(x[i]);
    dx[i] = g[i] * (p.cdf + x[i] * p.bell * inv_sqrt_2pi);
  }
  return 0;
}

// == silu: rows
extern "C" int silu_float32(const float* x, float* y, int64_t M, int64_t N, void*) {
  ALL y[i] = x[i] * sigmoid_(x[i]);
  return 0;
}
extern "C" int silu_backward_float32(const float* g, const float* x, float* dx, int64_t M, int64_t N, void*) {
  ALL {
    const float s = sigmoid_(x[i]);
    dx[i] = g[i] * s * (1.f + x[i] * (1.f - s));
  }
  return 0;
}

// == amax: rows
// NaN in a row makes its maximum NaN; backward shares the gradient evenly among equal maxima.
static inline float nan_max_row(const float* p, int64_t N) {
  int odd = 0;
#pragma omp simd reduction(| : odd)
  for (int64_t j = 0; j < N; ++j) odd |= p[j] != p[j];
  return odd ? std::numeric_limits<float>::quiet_NaN() : max_row(p, N);
}
extern "C" int amax_float32(const float* x, float* y, int64_t M, int64_t N, void*) {
  ROWS y[r] = nan_max_row(x + r * N, N);
  return 0;
}
extern "C" int amax_backward_float32(const float* g, const float* x, float* dx, int64_t M, int64_t N, void*) {
  ROWS {
    const float *p = x + r * N, top = nan_max_row(p, N);
    const double ties = sum_row(N, [=](int64_t j) { return p[j] == top ? 1.f : 0.f; });
    const float share = (float)(g[r] / ties);
    ROW dx[r * N + j] = (p[j] == top ? 1.f : 0.f) * share;
  }
  return 0;
}

// == argmax: rows
// Index of the first NaN, else of the first largest element.
extern "C" int argmax_float32(const float* x, int64_t* y, int64_t M, int64_t N, void*) {
  ROWS {
    const float* p = x + r * N;
    int64_t at = 0;
    for (int64_t j = 1; j < N && p[at] == p[at]; ++j) at = p[j] > p[at] || p[j] != p[j] ? j : at;
    y[r] = at;
  }
  return 0;
}

// == softmax: rows
static inline float finite_max_row(const float* p, int64_t N) {
  const float top = max_row(p, N);
  return std::fabs(top) < infinity ? top : 0.f;  // infinities then come out by themselves
}
static inline void softmax_row(const float* p, float* out, int64_t N, float factor) {  // out = factor * softmax(p)
  const float top = finite_max_row(p, N);
  ROW out[j] = exp_(p[j] - top);
  const float scale = (float)(factor / sum_row(N, [=](int64_t j) { return out[j]; }));
  ROW out[j] *= scale;
}

// == logsumexp: rows softmax
extern "C" int logsumexp_float32(const float* x, float* y, int64_t M, int64_t N, void*) {
  ROWS {
    const float *p = x + r * N, top = finite_max_row(p, N);
    y[r] = (float)(top + std::log(sum_row(N, [=](int64_t j) { return exp_(p[j] - top); })));
  }
  return 0;
}
extern "C" int logsumexp_backward_float32(const float* g, const float* x, float* dx, int64_t M, int64_t N, void*) {
  ROWS softmax_row(x + r * N, dx + r * N, N, g[r]);
  return 0;
}

// == softmax_cross_entropy: rows softmax
extern "C" int softmax_cross_entropy_float32(const float* x, const int64_t* target, float* y, int64_t M, int64_t N,
                                             void*) {
  ROWS {
    const float *p = x + r * N, top = finite_max_row(p, N);
    y[r] = (float)(std::log(sum_row(N, [=](int64_t j) { return exp_(p[j] - top); })) + ((double)top - p[target[r]]));
  }
  return 0;
}
extern "C" int softmax_cross_entropy_backward_float32(const float* g, const float* x, const int64_t* target, float* dx,
                                                      int64_t M, int64_t N, void*) {
  ROWS {
    softmax_row(x + r * N, dx + r * N, N, g[r]);
    dx[r * N + target[r]] -= g[r];
  }
  return 0;
}

// == moments: rows
struct Moments { float mean, scale; };
static inline Moments moments_row(const float* p, int64_t N, double eps) {
  const float mean = (float)(sum_row(N, [=](int64_t j) { return p[j]; }) / N);
  const double squares = sum_row(N, [=](int64_t j) { return (p[j] - mean) * (p[j] - mean); });
  return {mean, (float)(1.0 / std::sqrt(squares / N + eps))};
}
// == layer_norm: moments
extern "C" int layer_norm_float32(const float* x, const float* w, const float* b, double eps, float* y, int64_t M,
                                  int64_t N, void*) {
  ROWS {
    const float* p = x + r * N;
    const Moments m = moments_row(p, N, eps);
    ROW y[r * N + j] = (p[j] - m.mean) * m.scale * w[j] + b[j];
  }
  return 0;
}
// With u = g w and v = (x - mean) scale: dx = scale (u - mean(u) - v mean(u v)), dw = sum g v, db = sum g.
extern "C" int layer_norm_backward_float32(const float* g, const float* x, const float* w, const float*, double eps,
                                           float* dx, float* dw, float* db, int64_t M, int64_t N, void*) {
  std::vector<double> sw(N), sb(N);
  for (int64_t r = 0; r < M; ++r) {
    const float *p = x + r * N, *q = g + r * N;
    const Moments m = moments_row(p, N, eps);
    const auto v = [=](int64_t j) { return (p[j] - m.mean) * m.scale; };
    const float a = (float)(sum_row(N, [=](int64_t j) { return q[j] * w[j]; }) / N);
    const float c = (float)(sum_row(N, [=](int64_t j) { return q[j] * w[j] * v(j); }) / N);
    ROW dx[r * N + j] = m.scale * (q[j] * w[j] - a - v(j) * c);
    ROW sw[j] += q[j] * v(j);
    ROW sb[j] += q[j];
  }
  ROW { dw[j] = (float)sw[j]; db[j] = (float)sb[j]; }
  return 0;
}

// == rms: rows
static inline float rms_scale_row(const float* p, int64_t N, double eps) {
  return (float)(1.0 / std::sqrt(sum_row(N, [=](int64_t j) { return p[j] * p[j]; }) / N + eps));
}
// With v = x scale: dx = scale (g w - v mean(g w v)), dw = sum g v.
static inline void rms_backward(const float* g, const float* x, const float* w, double eps, float* dx, float* dw,
                                int64_t M, int64_t N) {
  std::vector<double> sw(N);
  for (int64_t r = 0; r < M; ++r) {
    const float *p = x + r * N, *q = g + r * N, scale = rms_scale_row(p, N, eps);
    const float c = (float)(sum_row(N, [=](int64_t j) { return q[j] * w[j] * (p[j] * scale); }) / N);
    ROW dx[r * N + j] = scale * (q[j] * w[j] - p[j] * scale * c);
    ROW sw[j] += q[j] * (p[j] * scale);
  }
  ROW dw[j] = (float)sw[j];
}

// == rms_norm: rms
extern "C" int rms_norm_float32(const float* x, const float* w, double eps, float* y, int64_t M, int64_t N, void*) {
  ROWS {
    const float *p = x + r * N, scale = rms_scale_row(p, N, eps);
    ROW y[r * N + j] = p[j] * scale * w[j];
  }
  return 0;
}
extern "C" int rms_norm_backward_float32(const float* g, const float* x, const float* w, double eps, float* dx,
                                         float* dw, int64_t M, int64_t N, void*) {
  rms_backward(g, x, w, eps, dx, dw, M, N);
  return 0;
}

// == swiglu: rows
extern "C" int swiglu_float32(const float* gate, const float* up, float* y, int64_t M, int64_t N, void*) {
  ALL y[i] = gate[i] * sigmoid_(gate[i]) * up[i];
  return 0;
}
extern "C" int swiglu_backward_float32(const float* g, const float* gate, const float* up, float* dgate, float* dup,
                                       int64_t M, int64_t N, void*) {
  ALL {
    const float s = sigmoid_(gate[i]);
    dgate[i] = g[i] * up[i] * s * (1.f + gate[i] * (1.f - s));
    dup[i] = g[i] * (gate[i] * s);
  }
  return 0;
}

// == add_rms_norm: rms
extern "C" int add_rms_norm_float32(const float* x, const float* residual, const float* w, double eps, float* y,
                                    float* total, int64_t M, int64_t N, void*) {
  ALL total[i] = x[i] + residual[i];
  ROWS {
    const float *p = total + r * N, scale = rms_scale_row(p, N, eps);
    ROW y[r * N + j] = p[j] * scale * w[j];
  }
  return 0;
}
extern "C" int add_rms_norm_backward_float32(const float* g, const float* gtotal, const float* x, const float* residual,
                                             const float* w, double eps, float* dx, float* dresidual, float* dw,
                                             int64_t M, int64_t N, void*) {
  std::vector<float> total(M * N);
  ALL total[i] = x[i] + residual[i];
  rms_backward(g, total.data(), w, eps, dx, dw, M, N);
  ALL dx[i] += gtotal[i];
  std::memcpy(dresidual, dx, M * N * sizeof(float));
  return 0;
}

// == group_norm: rows moments
// Rows are (sample, group) pairs: C channels of L elements, contiguous.
extern "C" int group_norm_float32(const float* x, const float* w, const float* b, int64_t, double eps, float* y,
                                  int64_t B, int64_t G, int64_t C, int64_t L, void*) {
  const int64_t M = B * G, N = C * L;
  ROWS {
    const Moments m = moments_row(x + r * N, N, eps);
    for (int64_t c = 0; c < C; ++c) {
      const float *p = x + (r * C + c) * L, scale = m.scale * w[r % G * C + c], offset = b[r % G * C + c];
      float* out = y + (r * C + c) * L;
#pragma omp simd
      for (int64_t j = 0; j < L; ++j) out[j] = (p[j] - m.mean) * scale + offset;
    }
  }
  return 0;
}

// == batch_norm: rows moments
extern "C" int batch_norm_float32(const float* x, const float* w, const float* b, double eps, float* y, int64_t B,
                                  int64_t C, int64_t L, void*) {
#pragma omp parallel for schedule(static) if (C > 1 && B * C * L > 65536)
  for (int64_t c = 0; c < C; ++c) {
    double sum = 0, squares = 0;
    for (int64_t s = 0; s < B; ++s) sum += sum_row(L, [=](int64_t j) { return x[(s * C + c) * L + j]; });
    const float mean = (float)(sum / (B * L));
    for (int64_t s = 0; s < B; ++s)
      squares += sum_row(L, [=](int64_t j) {
        const float d = x[(s * C + c) * L + j] - mean;
        return d * d;
      });
    const float scale = (float)(1.0 / std::sqrt(squares / (B * L) + eps)) * w[c];
    for (int64_t s = 0; s < B; ++s) {
      const int64_t at = (s * C + c) * L;
#pragma omp simd
      for (int64_t j = 0; j < L; ++j) y[at + j] = (x[at + j] - mean) * scale + b[c];
    }
  }
  return 0;
}
