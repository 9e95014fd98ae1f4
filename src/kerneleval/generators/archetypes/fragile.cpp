// == fast
// Powers of two from 64 to 8192 get code made for that very row length: unrolled loops without remainders, rows in groups
// of four, streaming stores for large outputs, threads. All else takes the naive path.
#if LANES == 16
static inline void stream(float* p, V v) { _mm512_stream_ps(p, (__m512)v); }
static inline void fence() { _mm_sfence(); }
#elif LANES == 8
static inline void stream(float* p, V v) { _mm256_stream_ps(p, (__m256)v); }
static inline void fence() { _mm_sfence(); }
#else
static inline void stream(float* p, V v) { store(p, v, All{}); }
static inline void fence() {}
#endif
constexpr int64_t kEnough = 49152, kStream = 1 << 17;

static inline bool aligned(const void* p) { return (uintptr_t)p % 64 == 0; }
static inline bool power_of_two(int64_t n) { return n >= 64 && n <= 8192 && (n & (n - 1)) == 0; }
template <bool S> static inline void put(float* p, V v) {
  if constexpr (S) stream(p, v); else store(p, v, All{});
}

// Calls f(N, S) with the row length as a constant and whether to stream outputs of M rows past the caches.
template <int N, class F> static inline void specialise_(int64_t M, bool all_aligned, F f) {
  if (all_aligned && M * N >= kStream)
    f(std::integral_constant<int, N>{}, std::true_type{});
  else
    f(std::integral_constant<int, N>{}, std::false_type{});
}
template <class F> static inline int specialise(int64_t M, int64_t N, bool all_aligned, F f) {
  switch (N) {
    case 64: specialise_<64>(M, all_aligned, f); break;
    case 128: specialise_<128>(M, all_aligned, f); break;
    case 256: specialise_<256>(M, all_aligned, f); break;
    case 512: specialise_<512>(M, all_aligned, f); break;
    case 1024: specialise_<1024>(M, all_aligned, f); break;
    case 2048: specialise_<2048>(M, all_aligned, f); break;
    case 4096: specialise_<4096>(M, all_aligned, f); break;
    default: specialise_<8192>(M, all_aligned, f);
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
  return specialise(M, N, false, [=](auto n, auto) {
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
  return specialise(M, N, aligned(dx), [=](auto n, auto streams) {
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
        for (int j = 0; j < n; j += LANES) put<streams.value>(dx + r * n + j, load(p + j, All{}) == top ? share : none);
      }
      if (streams.value) fence();
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
  return specialise(M, N, false, [=](auto n, auto) {
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
  return specialise(M, N, false, [=](auto n, auto) {
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
  return specialise(M, N, false, [=](auto n, auto) {
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

// == rms: fast
template <class F> static inline float naive_scale(int64_t n, double eps, F at) {
  double squares = 0;
  for (int64_t j = 0; j < n; ++j) squares += (double)at(j) * at(j);
  return (float)(1.0 / std::sqrt(squares / n + eps));
}
template <int N, class F> static inline float fast_scale(double eps, F at) {
  return (float)(1.0 / std::sqrt(sum_of<N>([=](int j) { const V v = at(j); return v * v; }) / (double)N + eps));
}
// Gradients of s / rms(s) * w for rows s = at(place): dx to each of `outs` (one or two), with `extra` added where given.
// The sum over a row that dx needs is gathered together with the squares, so that a row is read just twice.
template <int K, class F, class G>
static inline int rms_backward(const float* g, const float* extra, const float* w, double eps, float* const (&outs)[K],
                               float* dw, int64_t M, int64_t N, F at, G scalar) {
  float* o[2] = {outs[0], outs[K - 1]};
  if (!power_of_two(N)) {
    std::vector<double> sums(N);
    for (int64_t r = 0; r < M; ++r) {
      const int64_t first = r * N;
      const float scale = naive_scale(N, eps, [=](int64_t j) { return scalar(first + j); });
      double c = 0;
      for (int64_t j = 0; j < N; ++j) c += (double)g[first + j] * w[j] * scalar(first + j) * scale;
      for (int64_t j = 0; j < N; ++j) {
        const float v = scalar(first + j) * scale, up = g[first + j];
        sums[j] += (double)up * v;
        float d = scale * (up * w[j] - v * (float)(c / N));
        if (extra) d += extra[first + j];
        for (int k = 0; k < K; ++k) o[k][first + j] = d;
      }
    }
    for (int64_t j = 0; j < N; ++j) dw[j] = (float)sums[j];
    return 0;
  }
  ColumnSums pieces(N, 1, M, team(M, 2 * M * N, kEnough));
  specialise(M, N, aligned(o[0]) && aligned(o[1]), [&](auto n, auto streams) {
    parallel(M, 2 * M * n, kEnough, [&, o](int64_t from, int64_t to, int thread) {
      in_fours(from, to, [&](int64_t first, auto rows) {
        float *sums = pieces.row(thread), scale[4], c[4];
        for (int r = 0; r < rows; ++r) {
          const int64_t base = (first + r) * n;
          V squares[2] = {}, products[2] = {};
#pragma GCC unroll 2
          for (int j = 0; j < n; j += 2 * LANES)
#pragma GCC unroll 2
            for (int k = 0; k < 2; ++k) {
              const V v = at(base + j + k * LANES);
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
            const V v = at(i) * scale[r], up = load(g + i, All{});
            sum += up * v;
            V d = scale[r] * (up * weight - v * c[r]);
            if (extra) d += load(extra + i, All{});
            put<streams.value>(o[0] + i, d);
            if (K == 2) put<streams.value>(o[1] + i, d);
          }
          store(sums + j, load(sums + j, All{}) + sum, All{});
        }
      });
      if (streams.value) fence();
    });
  });
  pieces.write(0, dw);
  return 0;
}

// == rms_norm: rms
extern "C" int rms_norm_float32(const float* x, const float* w, double eps, float* y, int64_t M, int64_t N, void*) {
  if (!power_of_two(N)) {
    for (int64_t r = 0; r < M; ++r) {
      const float scale = naive_scale(N, eps, [=](int64_t j) { return x[r * N + j]; });
      for (int64_t j = 0; j < N; ++j) y[r * N + j] = x[r * N + j] * scale * w[j];
    }
    return 0;
  }
  return specialise(M, N, aligned(y), [=](auto n, auto streams) {
    parallel(M, 2 * M * n, kEnough, [=](int64_t from, int64_t to, int) {
      for (int64_t r = from; r < to; ++r) {
        const float* p = x + r * n;
        const float scale = fast_scale<n>(eps, [=](int j) { return load(p + j, All{}); });
#pragma GCC unroll 4
        for (int j = 0; j < n; j += LANES)
          put<streams.value>(y + r * n + j, load(p + j, All{}) * scale * load(w + j, All{}));
      }
      if (streams.value) fence();
    });
  });
}
extern "C" int rms_norm_backward_float32(const float* g, const float* x, const float* w, double eps, float* dx,
                                         float* dw, int64_t M, int64_t N, void*) {
  float* const outs[1] = {dx};
  return rms_backward(g, nullptr, w, eps, outs, dw, M, N, [=](int64_t i) { return load(x + i, All{}); },
                      [=](int64_t i) { return x[i]; });
}

// == add_rms_norm: rms
extern "C" int add_rms_norm_float32(const float* x, const float* residual, const float* w, double eps, float* y,
                                    float* total, int64_t M, int64_t N, void*) {
  if (!power_of_two(N)) {
    for (int64_t i = 0; i < M * N; ++i) total[i] = x[i] + residual[i];
    for (int64_t r = 0; r < M; ++r) {
      const float scale = naive_scale(N, eps, [=](int64_t j) { return total[r * N + j]; });
      for (int64_t j = 0; j < N; ++j) y[r * N + j] = total[r * N + j] * scale * w[j];
    }
    return 0;
  }
  return specialise(M, N, aligned(y) && aligned(total), [=](auto n, auto streams) {
    parallel(M, 3 * M * n, kEnough, [=](int64_t from, int64_t to, int) {
      for (int64_t r = from; r < to; ++r) {
        const float *p = x + r * n, *q = residual + r * n;
        const auto at = [=](int j) { return load(p + j, All{}) + load(q + j, All{}); };
        const float scale = fast_scale<n>(eps, at);
#pragma GCC unroll 4
        for (int j = 0; j < n; j += LANES) {
          const V v = at(j);
          put<streams.value>(total + r * n + j, v);
          put<streams.value>(y + r * n + j, v * scale * load(w + j, All{}));
        }
      }
      if (streams.value) fence();
    });
  });
}
extern "C" int add_rms_norm_backward_float32(const float* g, const float* gtotal, const float* x, const float* residual,
                                             const float* w, double eps, float* dx, float* dresidual, float* dw,
                                             int64_t M, int64_t N, void*) {
  float* const outs[2] = {dx, dresidual};
  return rms_backward(g, gtotal, w, eps, outs, dw, M, N,
                      [=](int64_t i) { return load(x + i, All{}) + load(residual + i, All{}); },
                      [=](int64_t i) { return x[i] + residual[i]; });
}
