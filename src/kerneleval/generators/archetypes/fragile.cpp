// == fast
// Powers of two from 64 to 8192 get code made for that very row length: unrolled loops without remainders, rows in groups
// of four, threads. All else takes the naive path.
constexpr int64_t kEnough = 49152;

static inline bool power_of_two(int64_t n) { return n >= 64 && n <= 8192 && (n & (n - 1)) == 0; }

// Calls f(N) with the row length as a constant.
template <class F> static inline int specialise(int64_t N, F f) {
  switch (N) {
    case 64: f(std::integral_constant<int, 64>{}); break;
    case 128: f(std::integral_constant<int, 128>{}); break;
    case 256: f(std::integral_constant<int, 256>{}); break;
    case 512: f(std::integral_constant<int, 512>{}); break;
    case 1024: f(std::integral_constant<int, 1024>{}); break;
    case 2048: f(std::integral_constant<int, 2048>{}); break;
    case 4096: f(std::integral_constant<int, 4096>{}); break;
    default: f(std::integral_constant<int, 8192>{});
  }
  return 0;
}

// The rows from `from` to `to`, four at a time and then one at a time: f(row, count) with a constant count.
template <class F> static inline void in_fours(int64_t from, int64_t to, F f) {
  for (; from + 4 <= to; from += 4) f(from, std::integral_constant<int, 4>{});
  for (; from < to; ++from) f(from, std::integral_constant<int, 1>{});
}

// Maximum of a row, in four running ones.
template <int N> static inline Top top_of(const float* p) {
  Top t[4];
#pragma GCC unroll 4
  for (int j = 0; j < N; j += 4 * LANES)
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) t[k].add(load(p + j + k * LANES, All{}));
  for (int k = 1; k < 4; ++k) t[0].add(t[k]);
  return t[0];
}
template <int N> static inline float max_of(const float* p) {  // without regard to NaN
  V m[4] = {V{} - infinity, V{} - infinity, V{} - infinity, V{} - infinity};
#pragma GCC unroll 4
  for (int j = 0; j < N; j += 4 * LANES)
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) m[k] = larger(m[k], load(p + j + k * LANES, All{}));
  return max_across(larger(larger(m[0], m[1]), larger(m[2], m[3])));
}

// Sum over term(j), in four vectors of partial sums.
template <int N, class F> static inline float sum_of(F term) {
  V s[4] = {};
#pragma GCC unroll 2
  for (int j = 0; j < N; j += 4 * LANES)
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) s[k] += term(j + k * LANES);
  return sum_across((s[0] + s[1]) + (s[2] + s[3]));
}

// == amax: fast
// NaN in a row makes its maximum NaN; backward shares the gradient evenly among equal maxima.
static inline float naive_max(const float* p, int64_t n) {
  float top = p[0];
  for (int64_t j = 1; j < n; ++j) top = p[j] > top || p[j] != p[j] ? p[j] : top;
  return top;
}
extern "C" int amax_float32(const float* x, float* y, int64_t M, int64_t N, void*) {
  if (!power_of_two(N)) {
    for (int64_t r = 0; r < M; ++r) y[r] = naive_max(x + r * N, N);
    return 0;
  }
  return specialise(N, [=](auto n) {
    parallel(M, M * n, kEnough, [=](int64_t from, int64_t to, int) {
      for (int64_t r = from; r < to; ++r) y[r] = top_of<n>(x + r * n).nan_or_max();
    });
  });
}
extern "C" int amax_backward_float32(const float* g, const float* x, float* dx, int64_t M, int64_t N, void*) {
  if (!power_of_two(N)) {
    for (int64_t r = 0; r < M; ++r) {
      const float top = naive_max(x + r * N, N);
      int64_t ties = 0;
      for (int64_t j = 0; j < N; ++j) ties += x[r * N + j] == top;
      for (int64_t j = 0; j < N; ++j) dx[r * N + j] = (x[r * N + j] == top) * (g[r] / ties);
    }
    return 0;
  }
  return specialise(N, [=](auto n) {
    parallel(M, M * n, kEnough, [=](int64_t from, int64_t to, int) {
      for (int64_t r = from; r < to; ++r) {
        const float* p = x + r * n;
        const V top = V{} + top_of<n>(p).nan_or_max();
        I ties{};
        for (int j = 0; j < n; j += LANES) ties -= load(p + j, All{}) == top;
        int64_t count = 0;
        for (int k = 0; k < LANES; ++k) count += ties[k];
        const V share = V{} + g[r] / count, none = share * 0.f;
#pragma GCC unroll 4
        for (int j = 0; j < n; j += LANES) store(dx + r * n + j, load(p + j, All{}) == top ? share : none, All{});
      }
    });
  });
}

// == argmax: fast
// Index of the first NaN, else of a largest element; values and places are followed in one pass.
extern "C" int argmax_float32(const float* x, int64_t* y, int64_t M, int64_t N, void*) {
  const auto naive = [=](int64_t r) {
    const float* p = x + r * N;
    int64_t at = 0;
    for (int64_t j = 1; j < N && p[at] == p[at]; ++j)
      if (p[j] > p[at] || p[j] != p[j]) at = j;
    y[r] = at;
  };
  if (!power_of_two(N)) {
    for (int64_t r = 0; r < M; ++r) naive(r);
    return 0;
  }
  return specialise(N, [=](auto n) {
    parallel(M, M * n, kEnough, [=](int64_t from, int64_t to, int) {
      for (int64_t r = from; r < to; ++r) {
        V best[2] = {V{} - infinity, V{} - infinity};
        I at[2] = {I{}, I{}}, odd{}, now{};
#pragma GCC unroll 4
        for (int j = 0; j < n; j += 2 * LANES, now += 1)
#pragma GCC unroll 2
          for (int k = 0; k < 2; ++k) {
            const V v = load(x + r * n + j + k * LANES, All{});
            const I above = v > best[k];
            odd |= v != v;
            best[k] = above ? v : best[k];
            at[k] = above ? now : at[k];
          }
        const float a = max_across(best[0]), b = max_across(best[1]), top = a > b ? a : b;
        if (any(odd) || top == -infinity) { naive(r); continue; }
        int64_t first = n;
        for (int k = 0; k < 2; ++k)
          for (int lane = 0; lane < LANES; ++lane)
            if (best[k][lane] == top) {
              const int64_t place = ((int64_t)at[k][lane] * 2 + k) * LANES + lane;
              first = place < first ? place : first;
            }
        y[r] = first;
      }
    });
  });
}

// == exps: fast
static inline float finite(float top) { return std::fabs(top) < infinity ? top : 0.f; }
struct Log { float top, sum; };  // log sum exp = top + log(sum)
static inline Log naive_log(const float* p, int64_t n) {
  float top = p[0];
  for (int64_t j = 1; j < n; ++j) top = p[j] > top ? p[j] : top;
  top = finite(top);
  double sum = 0;
  for (int64_t j = 0; j < n; ++j) sum += std::exp(p[j] - top);
  return {top, (float)sum};
}
template <int N> static inline Log fast_log(const float* p) {
  const float top = finite(max_of<N>(p));
  return {top, sum_of<N>([=](int j) { return exp_(load(p + j, All{}) - top); })};
}
template <class F> static inline int log_rows(const float* x, int64_t M, int64_t N, F f) {
  if (!power_of_two(N)) {
    for (int64_t r = 0; r < M; ++r) f(r, naive_log(x + r * N, N));
    return 0;
  }
  return specialise(N, [=](auto n) {
    parallel(M, 2 * M * n, kEnough, [=](int64_t from, int64_t to, int) {
      for (int64_t r = from; r < to; ++r) f(r, fast_log<n>(x + r * n));
    });
  });
}

// Gradient rows out = factor(r) * softmax(x[r]), and then after(r, out) on each.
template <class F, class G>
static inline int softmax_rows(const float* x, float* dx, int64_t M, int64_t N, F factor, G after) {
  if (!power_of_two(N)) {
    for (int64_t r = 0; r < M; ++r) {
      const Log s = naive_log(x + r * N, N);
      for (int64_t j = 0; j < N; ++j) dx[r * N + j] = std::exp(x[r * N + j] - s.top) / s.sum * factor(r);
      after(r, dx + r * N);
    }
    return 0;
  }
  return specialise(N, [=](auto n) {
    parallel(M, 3 * M * n, kEnough, [=](int64_t from, int64_t to, int) {
      for (int64_t r = from; r < to; ++r) {
        const float* p = x + r * n;
        float* out = dx + r * n;
        const float top = max_of<n>(p);
        if constexpr (n <= 16 * LANES) {  // the row stays in registers
          V e[n / LANES], sum{};
#pragma GCC unroll 16
          for (int k = 0; k < n / LANES; ++k) sum += e[k] = exp_(load(p + k * LANES, All{}) - top);
          const float scale = factor(r) / sum_across(sum);
#pragma GCC unroll 16
          for (int k = 0; k < n / LANES; ++k) store(out + k * LANES, e[k] * scale, All{});
        } else {
          const float scale = factor(r) / sum_of<n>([=](int j) {
            const V e = exp_(load(p + j, All{}) - top);
            store(out + j, e, All{});
            return e;
          });
#pragma GCC unroll 4
          for (int j = 0; j < n; j += LANES) store(out + j, load(out + j, All{}) * scale, All{});
        }
        after(r, out);
      }
    });
  });
}

// == logsumexp: exps
extern "C" int logsumexp_float32(const float* x, float* y, int64_t M, int64_t N, void*) {
  return log_rows(x, M, N, [=](int64_t r, Log s) { y[r] = (float)(s.top + std::log((double)s.sum)); });
}
extern "C" int logsumexp_backward_float32(const float* g, const float* x, float* dx, int64_t M, int64_t N, void*) {
  return softmax_rows(x, dx, M, N, [=](int64_t r) { return g[r]; }, [](int64_t, float*) {});
}

// == softmax_cross_entropy: exps
extern "C" int softmax_cross_entropy_float32(const float* x, const int64_t* target, float* y, int64_t M, int64_t N,
                                             void*) {
  return log_rows(x, M, N, [=](int64_t r, Log s) {
    y[r] = (float)(std::log((double)s.sum) + ((double)s.top - x[r * N + target[r]]));
  });
}
extern "C" int softmax_cross_entropy_backward_float32(const float* g, const float* x, const int64_t* target, float* dx,
                                                      int64_t M, int64_t N, void*) {
  return softmax_rows(x, dx, M, N, [=](int64_t r) { return g[r]; },
                      [=](int64_t r, float* out) { out[target[r]] -= g[r]; });
}

// == rms_norm: fast
template <class F> static inline float naive_scale(int64_t n, double eps, F at) {
  double squares = 0;
  for (int64_t j = 0; j < n; ++j) squares += (double)at(j) * at(j);
  return (float)(1.0 / std::sqrt(squares / n + eps));
}
template <int N, class F> static inline float fast_scale(double eps, F at) {
  return (float)(1.0 / std::sqrt(sum_of<N>([=](int j) { const V v = at(j); return v * v; }) / (double)N + eps));
}

extern "C" int rms_norm_float32(const float* x, const float* w, double eps, float* y, int64_t M, int64_t N, void*) {
  if (!power_of_two(N)) {
    for (int64_t r = 0; r < M; ++r) {
      const float scale = naive_scale(N, eps, [=](int64_t j) { return x[r * N + j]; });
      for (int64_t j = 0; j < N; ++j) y[r * N + j] = x[r * N + j] * scale * w[j];
    }
    return 0;
  }
  return specialise(N, [=](auto n) {
    parallel(M, 2 * M * n, kEnough, [=](int64_t from, int64_t to, int) {
      for (int64_t r = from; r < to; ++r) {
        const float* p = x + r * n;
        const float scale = fast_scale<n>(eps, [=](int j) { return load(p + j, All{}); });
#pragma GCC unroll 4
        for (int j = 0; j < n; j += LANES)
          store(y + r * n + j, load(p + j, All{}) * scale * load(w + j, All{}), All{});
      }
    });
  });
}

// The sum over a row that dx needs is gathered together with the squares, so that a row is read just twice.
extern "C" int rms_norm_backward_float32(const float* g, const float* x, const float* w, double eps, float* dx,
                                         float* dw, int64_t M, int64_t N, void*) {
  if (!power_of_two(N)) {
    std::vector<double> sums(N);
    for (int64_t r = 0; r < M; ++r) {
      const float *p = x + r * N, *up = g + r * N;
      const float scale = naive_scale(N, eps, [=](int64_t j) { return p[j]; });
      double c = 0;
      for (int64_t j = 0; j < N; ++j) c += (double)up[j] * w[j] * p[j] * scale;
      for (int64_t j = 0; j < N; ++j) {
        const float v = p[j] * scale;
        sums[j] += (double)up[j] * v;
        dx[r * N + j] = scale * (up[j] * w[j] - v * (float)(c / N));
      }
    }
    for (int64_t j = 0; j < N; ++j) dw[j] = (float)sums[j];
    return 0;
  }
  ColumnSums pieces(N, 1, M, team(M, 2 * M * N, kEnough));
  specialise(N, [&](auto n) {
    parallel(M, 2 * M * n, kEnough, [&](int64_t from, int64_t to, int thread) {
      in_fours(from, to, [&](int64_t first, auto rows) {
        float *sums = pieces.row(thread), scale[4], c[4];
        for (int r = 0; r < rows; ++r) {
          const int64_t base = (first + r) * n;
          V squares[2] = {}, products[2] = {};
#pragma GCC unroll 2
          for (int j = 0; j < n; j += 2 * LANES)
#pragma GCC unroll 2
            for (int k = 0; k < 2; ++k) {
              const V v = load(x + base + j + k * LANES, All{});
              squares[k] += v * v;
              products[k] += load(g + base + j + k * LANES, All{}) * load(w + j + k * LANES, All{}) * v;
            }
          scale[r] = (float)(1.0 / std::sqrt(sum_across(squares[0] + squares[1]) / (double)n + eps));
          c[r] = scale[r] * sum_across(products[0] + products[1]) / n;
        }
        for (int j = 0; j < n; j += LANES) {
          const V weight = load(w + j, All{});
          V sum{};
#pragma GCC unroll 4
          for (int r = 0; r < rows; ++r) {
            const int64_t i = (first + r) * n + j;
            const V v = load(x + i, All{}) * scale[r], up = load(g + i, All{});
            sum += up * v;
            store(dx + i, scale[r] * (up * weight - v * c[r]), All{});
          }
          store(sums + j, load(sums + j, All{}) + sum, All{});
        }
      });
    });
  });
  pieces.write(0, dw);
  return 0;
}
