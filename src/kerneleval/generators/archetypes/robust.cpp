// == rows
// Every row length takes the same path: whole vectors, then one masked vector. Threads share rows (or, in elementwise
// operators, elements) once there is enough work to pay for them.
constexpr int64_t kEnough = 65536;
constexpr int64_t kBlock = 128 * LANES;  // longest stretch that is summed in float before going on in double

template <class F> static inline void each(int64_t n, F f) {
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) f(i, All{});
  if (i < n) f(i, First{(int)(n - i)});
}

// Sum over term(i, lanes): four vectors of partial sums over a block at a time, the blocks in double.
template <class F> static inline double sum_row(int64_t n, F term) {
  double total = 0;
  for (int64_t from = 0; from < n; from += kBlock) {
    const int64_t to = n - from < kBlock ? n : from + kBlock;
    V a{}, b{}, c{}, d{};
    int64_t i = from;
    for (; i + 4 * LANES <= to; i += 4 * LANES) {
      a += term(i, All{});
      b += term(i + LANES, All{});
      c += term(i + 2 * LANES, All{});
      d += term(i + 3 * LANES, All{});
    }
    for (; i + LANES <= to; i += LANES) a += term(i, All{});
    if (i < to) { const First f{(int)(to - i)}; b += keep(term(i, f), f); }
    total += sum_across((a + b) + (c + d));
  }
  return total;
}

// Largest element of a row, without regard to NaN (a NaN makes a sum of exponentials NaN by itself).
static inline float max_row(const float* x, int64_t n) {
  V a = V{} - infinity, b = a;
  int64_t i = 0;
  for (; i + 2 * LANES <= n; i += 2 * LANES) {
    a = larger(a, load(x + i, All{}));
    b = larger(b, load(x + i + LANES, All{}));
  }
  each(n - i, [&](int64_t j, auto lanes) { a = larger(a, load(x + i + j, lanes, -infinity)); });
  return max_across(larger(a, b));
}

// == unary: rows
// y[i] = f(x[i]) and, backward, dx[i] = f(x[i], g[i])
template <class F> static inline int unary(const float* x, float* y, int64_t n, F f) {
  parallel(n, n, kEnough, [=](int64_t from, int64_t to, int) {
    each(to - from, [=](int64_t i, auto lanes) { store(y + from + i, f(load(x + from + i, lanes)), lanes); });
  });
  return 0;
}
template <class F> static inline int unary_grad(const float* g, const float* x, float* dx, int64_t n, F f) {
  parallel(n, n, kEnough, [=](int64_t from, int64_t to, int) {
    each(to - from, [=](int64_t i, auto lanes) {
      store(dx + from + i, f(load(x + from + i, lanes), load(g + from + i, lanes)), lanes);
    });
  });
  return 0;
}

// == gelu: unary
extern "C" int gelu_float32(const float* x, float* y, int64_t M, int64_t N, void*) {
  return unary(x, y, M * N, [](V v) { return v * normal_(v).cdf; });
}
extern "C" int gelu_backward_float32(const float* g, const float* x, float* dx, int64_t M, int64_t N, void*) {
  return unary_grad(g, x, dx, M * N, [](V v, V up) {
    const Normal<V> p = normal_(v);
    return up * (p.cdf + v * p.bell * inv_sqrt_2pi);
  });
}

// == silu: unary
extern "C" int silu_float32(const float* x, float* y, int64_t M, int64_t N, void*) {
  return unary(x, y, M * N, [](V v) { return v * sigmoid_(v); });
}
extern "C" int silu_backward_float32(const float* g, const float* x, float* dx, int64_t M, int64_t N, void*) {
  return unary_grad(g, x, dx, M * N, [](V v, V up) {
    const V s = sigmoid_(v);
    return up * s * (1.f + v * (1.f - s));
  });
}

// == top: rows
static inline Top top_row(const float* x, int64_t n) {
  Top a, b;
  int64_t i = 0;
  for (; i + 2 * LANES <= n; i += 2 * LANES) {
    a.add(load(x + i, All{}));
    b.add(load(x + i + LANES, All{}));
  }
  each(n - i, [&](int64_t j, auto lanes) { a.add(load(x + i + j, lanes, -infinity)); });
  a.add(b);
  return a;
}

// == amax: top
// NaN in a row makes its maximum NaN; backward shares the gradient evenly among equal maxima.
extern "C" int amax_float32(const float* x, float* y, int64_t M, int64_t N, void*) {
  parallel(M, M * N, kEnough, [=](int64_t from, int64_t to, int) {
    for (int64_t r = from; r < to; ++r) y[r] = top_row(x + r * N, N).nan_or_max();
  });
  return 0;
}
extern "C" int amax_backward_float32(const float* g, const float* x, float* dx, int64_t M, int64_t N, void*) {
  parallel(M, 2 * M * N, kEnough, [=](int64_t from, int64_t to, int) {
    for (int64_t r = from; r < to; ++r) {
      const float* p = x + r * N;
      const V top = V{} + top_row(p, N).nan_or_max(), one = V{} + 1.f;
      const double ties = sum_row(N, [=](int64_t i, auto lanes) { return load(p + i, lanes) == top ? one : V{}; });
      const V share = V{} + (float)(g[r] / ties);
      each(N, [=](int64_t i, auto lanes) {
        store(dx + r * N + i, (load(p + i, lanes) == top ? one : V{}) * share, lanes);
      });
    }
  });
  return 0;
}

// == argmax: top
// Index of the first NaN, else of the first largest element: find the value, then where it first stands.
extern "C" int argmax_float32(const float* x, int64_t* y, int64_t M, int64_t N, void*) {
  parallel(M, M * N, kEnough, [=](int64_t from, int64_t to, int) {
    for (int64_t r = from; r < to; ++r) {
      const float* p = x + r * N;
      const Top found = top_row(p, N);
      int64_t at = 0;
      if (found.nan()) {
        while (p[at] == p[at]) ++at;
      } else {
        const float top = found.max();
        while (at + LANES <= N && !any(load(p + at, All{}) == V{} + top)) at += LANES;
        while (p[at] != top) ++at;
      }
      y[r] = at;
    }
  });
  return 0;
}

// == softmax: rows
struct SumExp { float top; double sum; };
static inline SumExp sum_exp_row(const float* p, int64_t n) {
  float top = max_row(p, n);
  if (!(std::fabs(top) < infinity)) top = 0.f;  // as the definition has it: infinities then come out by themselves
  return {top, sum_row(n, [=](int64_t i, auto lanes) { return exp_(load(p + i, lanes) - top); })};
}
static inline void softmax_row(const float* p, float* out, int64_t n, float factor) {  // out = factor * softmax(p)
  const float top = max_row(p, n);
  const double sum = sum_row(n, [=](int64_t i, auto lanes) {
    const V e = exp_(load(p + i, lanes, -infinity) - top);
    store(out + i, e, lanes);
    return e;
  });
  const float scale = (float)(factor / sum);
  each(n, [=](int64_t i, auto lanes) { store(out + i, load(out + i, lanes) * scale, lanes); });
}

// == logsumexp: rows softmax
extern "C" int logsumexp_float32(const float* x, float* y, int64_t M, int64_t N, void*) {
  parallel(M, 2 * M * N, kEnough, [=](int64_t from, int64_t to, int) {
    for (int64_t r = from; r < to; ++r) {
      const SumExp s = sum_exp_row(x + r * N, N);
      y[r] = (float)(s.top + std::log(s.sum));
    }
  });
  return 0;
}
extern "C" int logsumexp_backward_float32(const float* g, const float* x, float* dx, int64_t M, int64_t N, void*) {
  parallel(M, 2 * M * N, kEnough, [=](int64_t from, int64_t to, int) {
    for (int64_t r = from; r < to; ++r) softmax_row(x + r * N, dx + r * N, N, g[r]);
  });
  return 0;
}

// == softmax_cross_entropy: rows softmax
extern "C" int softmax_cross_entropy_float32(const float* x, const int64_t* target, float* y, int64_t M, int64_t N,
                                             void*) {
  parallel(M, 2 * M * N, kEnough, [=](int64_t from, int64_t to, int) {
    for (int64_t r = from; r < to; ++r) {
      const SumExp s = sum_exp_row(x + r * N, N);
      y[r] = (float)(std::log(s.sum) + ((double)s.top - x[r * N + target[r]]));
    }
  });
  return 0;
}
extern "C" int softmax_cross_entropy_backward_float32(const float* g, const float* x, const int64_t* target, float* dx,
                                                      int64_t M, int64_t N, void*) {
  parallel(M, 2 * M * N, kEnough, [=](int64_t from, int64_t to, int) {
    for (int64_t r = from; r < to; ++r) {
      softmax_row(x + r * N, dx + r * N, N, g[r]);
      dx[r * N + target[r]] -= g[r];
    }
  });
  return 0;
}

// == moments: rows
struct Moments { float mean, scale; };
static inline Moments moments_row(const float* p, int64_t n, double eps) {
  const float mean = (float)(sum_row(n, [=](int64_t i, auto lanes) { return load(p + i, lanes); }) / n);
  const double squares = sum_row(n, [=](int64_t i, auto lanes) {
    const V d = load(p + i, lanes) - mean;
    return d * d;
  });
  return {mean, (float)(1.0 / std::sqrt(squares / n + eps))};
}
// Sums of g and of g v, v = (x - mean) scale, over one piece of a channel; and dx = scale (w g - a - v c) there.
struct GradSums { double with, alone; };
static inline GradSums grad_sums_row(const float* p, const float* q, int64_t n, Moments m) {
  V with{}, alone{};
  GradSums sums{0, 0};
  for (int64_t from = 0; from < n; from += kBlock) {
    each(n - from < kBlock ? n - from : kBlock, [&](int64_t i, auto lanes) {
      const V up = load(q + from + i, lanes);
      with += up * ((load(p + from + i, lanes) - m.mean) * m.scale);  // up is 0 beyond the end
      alone += up;
    });
    sums.with += sum_across(with);
    sums.alone += sum_across(alone);
    with = alone = V{};
  }
  return sums;
}
static inline void grad_row(const float* p, const float* q, float* dx, int64_t n, Moments m, float w, float a, float c) {
  each(n, [=](int64_t i, auto lanes) {
    const V v = (load(p + i, lanes) - m.mean) * m.scale;
    store(dx + i, m.scale * (load(q + i, lanes) * w - a - v * c), lanes);
  });
}

// == layer_norm: moments
extern "C" int layer_norm_float32(const float* x, const float* w, const float* b, double eps, float* y, int64_t M,
                                  int64_t N, void*) {
  parallel(M, 2 * M * N, kEnough, [=](int64_t from, int64_t to, int) {
    for (int64_t r = from; r < to; ++r) {
      const float* p = x + r * N;
      const Moments m = moments_row(p, N, eps);
      each(N, [=](int64_t i, auto lanes) {
        store(y + r * N + i, (load(p + i, lanes) - m.mean) * m.scale * load(w + i, lanes) + load(b + i, lanes), lanes);
      });
    }
  });
  return 0;
}
// With u = g w and v = (x - mean) scale: dx = scale (u - mean(u) - v mean(u v)), dw = sum g v, db = sum g.
extern "C" int layer_norm_backward_float32(const float* g, const float* x, const float* w, const float*, double eps,
                                           float* dx, float* dw, float* db, int64_t M, int64_t N, void*) {
  ColumnSums sums(N, 2, M, team(M, 2 * M * N, kEnough));
  parallel(M, 2 * M * N, kEnough, [=, &sums](int64_t from, int64_t to, int thread) {
    for (int64_t r = from; r < to; ++r) {
      const float *p = x + r * N, *q = g + r * N;
      const Moments m = moments_row(p, N, eps);
      float *pw = sums.row(thread), *pb = pw + N;
      V su{}, suv{};
      each(N, [&](int64_t i, auto lanes) {
        const V up = load(q + i, lanes), v = (load(p + i, lanes) - m.mean) * m.scale, u = up * load(w + i, lanes);
        su += u;
        suv += u * v;
        store(pw + i, load(pw + i, lanes) + up * v, lanes);
        store(pb + i, load(pb + i, lanes) + up, lanes);
      });
      const float a = sum_across(su) / N, c = sum_across(suv) / N;
      each(N, [=](int64_t i, auto lanes) {
        const V v = (load(p + i, lanes) - m.mean) * m.scale, u = load(q + i, lanes) * load(w + i, lanes);
        store(dx + r * N + i, m.scale * (u - a - v * c), lanes);
      });
    }
  });
  sums.write(0, dw);
  sums.write(1, db);
  return 0;
}

// == rms: rows
static inline float rms_scale(double squares, int64_t n, double eps) {
  return (float)(1.0 / std::sqrt(squares / n + eps));
}
// With v = x scale: dx = scale (g w - v mean(g w v)) + extra, dw = sum g v.
static inline void rms_grad_row(const float* q, const float* p, const float* w, const float* extra, double eps,
                                float* dx, float* pw, int64_t n) {
  V squares{}, products{};
  double sum_squares = 0, sum_products = 0;
  for (int64_t from = 0; from < n; from += kBlock) {
    each(n - from < kBlock ? n - from : kBlock, [&](int64_t i, auto lanes) {
      i += from;
      const V v = load(p + i, lanes);
      squares += v * v;
      products += load(q + i, lanes) * load(w + i, lanes) * v;
    });
    sum_squares += sum_across(squares);
    sum_products += sum_across(products);
    squares = products = V{};
  }
  const float scale = rms_scale(sum_squares, n, eps), c = (float)(scale * sum_products / n);
  each(n, [=](int64_t i, auto lanes) {
    const V v = load(p + i, lanes) * scale, up = load(q + i, lanes);
    store(pw + i, load(pw + i, lanes) + up * v, lanes);
    V d = scale * (up * load(w + i, lanes) - v * c);
    if (extra) d += load(extra + i, lanes);
    store(dx + i, d, lanes);
  });
}
// == rms_norm: rms
extern "C" int rms_norm_float32(const float* x, const float* w, double eps, float* y, int64_t M, int64_t N, void*) {
  parallel(M, 2 * M * N, kEnough, [=](int64_t from, int64_t to, int) {
    for (int64_t r = from; r < to; ++r) {
      const float* p = x + r * N;
      const double squares = sum_row(N, [=](int64_t i, auto lanes) { const V v = load(p + i, lanes); return v * v; });
      const float scale = rms_scale(squares, N, eps);
      each(N, [=](int64_t i, auto lanes) {
        store(y + r * N + i, load(p + i, lanes) * scale * load(w + i, lanes), lanes);
      });
    }
  });
  return 0;
}
extern "C" int rms_norm_backward_float32(const float* g, const float* x, const float* w, double eps, float* dx,
                                         float* dw, int64_t M, int64_t N, void*) {
  ColumnSums sums(N, 1, M, team(M, 2 * M * N, kEnough));
  parallel(M, 2 * M * N, kEnough, [=, &sums](int64_t from, int64_t to, int thread) {
    for (int64_t r = from; r < to; ++r)
      rms_grad_row(g + r * N, x + r * N, w, nullptr, eps, dx + r * N, sums.row(thread), N);
  });
  sums.write(0, dw);
  return 0;
}

// == swiglu: rows
extern "C" int swiglu_float32(const float* gate, const float* up, float* y, int64_t M, int64_t N, void*) {
  parallel(M * N, M * N, kEnough, [=](int64_t from, int64_t to, int) {
    each(to - from, [=](int64_t i, auto lanes) {
      i += from;
      const V a = load(gate + i, lanes);
      store(y + i, a * sigmoid_(a) * load(up + i, lanes), lanes);
    });
  });
  return 0;
}
extern "C" int swiglu_backward_float32(const float* g, const float* gate, const float* up, float* dgate, float* dup,
                                       int64_t M, int64_t N, void*) {
  parallel(M * N, M * N, kEnough, [=](int64_t from, int64_t to, int) {
    each(to - from, [=](int64_t i, auto lanes) {
      i += from;
      const V a = load(gate + i, lanes), q = load(g + i, lanes), s = sigmoid_(a);
      store(dgate + i, q * load(up + i, lanes) * s * (1.f + a * (1.f - s)), lanes);
      store(dup + i, q * (a * s), lanes);
    });
  });
  return 0;
}

// == add_rms_norm: rms
extern "C" int add_rms_norm_float32(const float* x, const float* residual, const float* w, double eps, float* y,
                                    float* total, int64_t M, int64_t N, void*) {
  parallel(M, 3 * M * N, kEnough, [=](int64_t from, int64_t to, int) {
    for (int64_t r = from; r < to; ++r) {
      const float *p = x + r * N, *q = residual + r * N;
      float* t = total + r * N;
      const double squares = sum_row(N, [=](int64_t i, auto lanes) {
        const V v = load(p + i, lanes) + load(q + i, lanes);
        store(t + i, v, lanes);
        return v * v;
      });
      const float scale = rms_scale(squares, N, eps);
      each(N, [=](int64_t i, auto lanes) {
        store(y + r * N + i, load(t + i, lanes) * scale * load(w + i, lanes), lanes);
      });
    }
  });
  return 0;
}
// The sum is formed anew in dresidual, which at last receives the same gradient as dx.
extern "C" int add_rms_norm_backward_float32(const float* g, const float* gtotal, const float* x, const float* residual,
                                             const float* w, double eps, float* dx, float* dresidual, float* dw,
                                             int64_t M, int64_t N, void*) {
  ColumnSums sums(N, 1, M, team(M, 3 * M * N, kEnough));
  parallel(M, 3 * M * N, kEnough, [=, &sums](int64_t from, int64_t to, int thread) {
    for (int64_t r = from; r < to; ++r) {
      const int64_t at = r * N;
      each(N, [=](int64_t i, auto lanes) {
        store(dresidual + at + i, load(x + at + i, lanes) + load(residual + at + i, lanes), lanes);
      });
      rms_grad_row(g + at, dresidual + at, w, gtotal + at, eps, dx + at, sums.row(thread), N);
      std::memcpy(dresidual + at, dx + at, N * sizeof(float));
    }
  });
  sums.write(0, dw);
  return 0;
}

// == group_norm: rows moments
// Rows are (sample, group) pairs: C channels of L elements, contiguous.
extern "C" int group_norm_float32(const float* x, const float* w, const float* b, int64_t, double eps, float* y,
                                  int64_t B, int64_t G, int64_t C, int64_t L, void*) {
  const int64_t n = C * L;
  parallel(B * G, 2 * B * G * n, kEnough, [=](int64_t from, int64_t to, int) {
    for (int64_t r = from; r < to; ++r) {
      const float* p = x + r * n;
      const Moments m = moments_row(p, n, eps);
      for (int64_t c = 0; c < C; ++c) {
        const int64_t channel = r % G * C + c;
        const float scale = m.scale * w[channel], offset = b[channel];
        each(L, [=](int64_t i, auto lanes) {
          store(y + r * n + c * L + i, (load(p + c * L + i, lanes) - m.mean) * scale + offset, lanes);
        });
      }
    }
  });
  return 0;
}
// As layer_norm, with one weight for all L elements of a channel; its gradients are summed over samples at the end.
extern "C" int group_norm_backward_float32(const float* g, const float* x, const float* w, const float*, int64_t,
                                           double eps, float* dx, float* dw, float* db, int64_t B, int64_t G, int64_t C,
                                           int64_t L, void*) {
  const int64_t n = C * L, channels = G * C;
  std::vector<double> sums(2 * B * channels);
  double* of = sums.data();
  parallel(B * G, 2 * B * G * n, kEnough, [=](int64_t from, int64_t to, int) {
    for (int64_t r = from; r < to; ++r) {
      const float *p = x + r * n, *q = g + r * n;
      const Moments m = moments_row(p, n, eps);
      double a = 0, c2 = 0;
      for (int64_t c = 0; c < C; ++c) {
        const GradSums s = grad_sums_row(p + c * L, q + c * L, L, m);
        const float weight = w[r % G * C + c];
        of[2 * (r * C + c)] = s.with;
        of[2 * (r * C + c) + 1] = s.alone;
        a += weight * s.alone;
        c2 += weight * s.with;
      }
      for (int64_t c = 0; c < C; ++c)
        grad_row(p + c * L, q + c * L, dx + r * n + c * L, L, m, w[r % G * C + c], (float)(a / n), (float)(c2 / n));
    }
  });
  for (int64_t c = 0; c < channels; ++c) {
    double sw = 0, sb = 0;
    for (int64_t s = 0; s < B; ++s) { sw += of[2 * (s * channels + c)]; sb += of[2 * (s * channels + c) + 1]; }
    dw[c] = (float)sw;
    db[c] = (float)sb;
  }
  return 0;
}

// == batch_norm: rows moments
// A channel is B pieces of L elements, C * L apart.
static inline Moments moments_channel(const float* p, int64_t B, int64_t step, int64_t L, double eps) {
  double sum = 0, squares = 0;
  for (int64_t s = 0; s < B; ++s) sum += sum_row(L, [=](int64_t i, auto l) { return load(p + s * step + i, l); });
  const float mean = (float)(sum / (B * L));
  for (int64_t s = 0; s < B; ++s)
    squares += sum_row(L, [=](int64_t i, auto l) {
      const V d = load(p + s * step + i, l) - mean;
      return d * d;
    });
  return {mean, (float)(1.0 / std::sqrt(squares / (B * L) + eps))};
}
extern "C" int batch_norm_float32(const float* x, const float* w, const float* b, double eps, float* y, int64_t B,
                                  int64_t C, int64_t L, void*) {
  parallel(C, 2 * B * C * L, kEnough, [=](int64_t from, int64_t to, int) {
    for (int64_t c = from; c < to; ++c) {
      const Moments m = moments_channel(x + c * L, B, C * L, L, eps);
      const float scale = m.scale * w[c], offset = b[c];
      for (int64_t s = 0; s < B; ++s)
        each(L, [=](int64_t i, auto lanes) {
          const int64_t at = (s * C + c) * L + i;
          store(y + at, (load(x + at, lanes) - m.mean) * scale + offset, lanes);
        });
    }
  });
  return 0;
}
extern "C" int batch_norm_backward_float32(const float* g, const float* x, const float* w, const float*, double eps,
                                           float* dx, float* dw, float* db, int64_t B, int64_t C, int64_t L, void*) {
  parallel(C, 2 * B * C * L, kEnough, [=](int64_t from, int64_t to, int) {
    for (int64_t c = from; c < to; ++c) {
      const Moments m = moments_channel(x + c * L, B, C * L, L, eps);
      GradSums all{0, 0};
      for (int64_t s = 0; s < B; ++s) {
        const int64_t at = (s * C + c) * L;
        const GradSums one = grad_sums_row(x + at, g + at, L, m);
        all.with += one.with;
        all.alone += one.alone;
      }
      const double n = (double)B * L;
      for (int64_t s = 0; s < B; ++s) {
        const int64_t at = (s * C + c) * L;
        grad_row(x + at, g + at, dx + at, L, m, w[c], (float)(w[c] * all.alone / n), (float)(w[c] * all.with / n));
      }
      dw[c] = (float)all.with;
      db[c] = (float)all.alone;
    }
  });
  return 0;
}
