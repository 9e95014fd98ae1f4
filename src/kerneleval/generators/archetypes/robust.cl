// == elementwise
// Sixteen neighbours for each work-item, whatever the shape; the last one takes what is left.
#define UNARY(NAME)                                                                                                   \
  kernel void NAME##_float32(global const float *x, global float *y, long M, long N) {                                \
    const long at = get_global_id(0) * LANES;                                                                         \
    if (at + LANES <= M * N) vstore16(NAME(vload16(0, x + at)), 0, y + at);                                           \
    else for (long i = at; i < M * N; i++) y[i] = NAME((V)(x[i])).s0;                                                 \
  }                                                                                                                   \
  kernel void NAME##_backward_float32(global const float *g, global const float *x, global float *dx, long M,         \
                                      long N) {                                                                       \
    const long at = get_global_id(0) * LANES;                                                                         \
    if (at + LANES <= M * N) vstore16(NAME##_grad(vload16(0, x + at), vload16(0, g + at)), 0, dx + at);               \
    else for (long i = at; i < M * N; i++) dx[i] = NAME##_grad((V)(x[i]), (V)(g[i])).s0;                              \
  }

// == gelu: elementwise
// kerneleval-launch: gelu_float32 global=cdiv(M*N,1024)*64 local=64
// kerneleval-launch: gelu_backward_float32 global=cdiv(M*N,1024)*64 local=64
GELU(V, gelu)
UNARY(gelu)

// == silu: elementwise
// kerneleval-launch: silu_float32 global=cdiv(M*N,1024)*64 local=64
// kerneleval-launch: silu_backward_float32 global=cdiv(M*N,1024)*64 local=64
SILU(V, silu)
UNARY(silu)

// == swiglu: elementwise
// kerneleval-launch: swiglu_float32 global=cdiv(M*N,1024)*64 local=64
// kerneleval-launch: swiglu_backward_float32 global=cdiv(M*N,1024)*64 local=64
SILU(V, silu)
kernel void swiglu_float32(global const float *gate, global const float *up, global float *y, long M, long N) {
  const long at = get_global_id(0) * LANES;
  if (at + LANES <= M * N) vstore16(silu(vload16(0, gate + at)) * vload16(0, up + at), 0, y + at);
  else for (long i = at; i < M * N; i++) y[i] = silu((V)(gate[i])).s0 * up[i];
}
kernel void swiglu_backward_float32(global const float *g, global const float *gate, global const float *up,
                                    global float *dgate, global float *dup, long M, long N) {
  const long at = get_global_id(0) * LANES;
  if (at + LANES <= M * N) {
    const V a = vload16(0, gate + at), d = vload16(0, g + at);
    vstore16(silu_grad(a, d * vload16(0, up + at)), 0, dgate + at);
    vstore16(d * silu(a), 0, dup + at);
    return;
  }
  for (long i = at; i < M * N; i++) {
    dgate[i] = silu_grad((V)(gate[i]), (V)(g[i] * up[i])).s0;
    dup[i] = g[i] * silu((V)(gate[i])).s0;
  }
}

// == rows
// One work-item goes through whole rows by vectors, 4096 elements or a row at least: a group of many items would have
// to meet at barriers, and a processor has no use for that.
#define BLOCK 2048  // longest stretch that is summed in float before going on in double
#define MY_ROWS(r)                                                                                                    \
  const long per = max(1L, 4096 / max(N, 1L)), end = min(M, (long)(get_global_id(0) + 1) * per);                      \
  for (long r = get_global_id(0) * per; r < end; r++)
// The vector at j of a row of N, and `rest` in the lanes beyond its end.
static inline V part(global const float *p, long j, long N, float rest) {
  if (j + LANES <= N) return vload16(0, p + j);
  float kept[LANES];
  for (int k = 0; k < LANES; k++) kept[k] = j + k < N ? p[j + k] : rest;
  return vload16(0, kept);
}
static inline void put(V v, global float *p, long j, long N) {
  if (j + LANES <= N) {
    vstore16(v, 0, p + j);
    return;
  }
  float kept[LANES];
  vstore16(v, 0, kept);
  for (int k = 0; j + k < N; k++) p[j + k] = kept[k];
}
// Sum over TERM, a vector expression in j that is 0 beyond the end, into the double INTO.
#define SUM(INTO, TERM)                                                                                               \
  double INTO = 0;                                                                                                    \
  for (long from = 0; from < N; from += BLOCK) {                                                                      \
    V sum_ = 0.f;                                                                                                     \
    for (long j = from; j < min(from + BLOCK, N); j += LANES) sum_ += TERM;                                           \
    INTO += sum_across(sum_);                                                                                         \
  }
#define EACH(j) for (long j = 0; j < N; j += LANES)
// Largest element, without regard to NaN.
static inline float max_row(global const float *p, long N) {
  V most = -INFINITY;
  EACH(j) {
    const V v = part(p, j, N, -INFINITY);
    most = v > most ? v : most;
  }
  return max_across(most);
}
static inline float nan_max_row(global const float *p, long N) {
  V most = -INFINITY;
  I odd = 0;
  EACH(j) {
    const V v = part(p, j, N, -INFINITY);
    most = v > most ? v : most;
    odd |= v != v;
  }
  return any(odd) ? NAN : max_across(most);
}

// == amax: rows
// kerneleval-launch: amax_float32 global=cdiv(M,max(1,4096//max(N,1))) local=1
// kerneleval-launch: amax_backward_float32 global=cdiv(M,max(1,4096//max(N,1))) local=1
// NaN in a row makes its maximum NaN; backward shares the gradient evenly among equal maxima.
kernel void amax_float32(global const float *x, global float *y, long M, long N) {
  MY_ROWS(r) y[r] = nan_max_row(x + r * N, N);
}
kernel void amax_backward_float32(global const float *g, global const float *x, global float *dx, long M, long N) {
  MY_ROWS(r) {
    global const float *p = x + r * N;
    const float top = nan_max_row(p, N);
    const V one = 1.f, none = 0.f;
    SUM(ties, (part(p, j, N, NAN) == top ? one : none))
    const float share = (float)(g[r] / ties);
    EACH(j) put((part(p, j, N, NAN) == top ? one : none) * share, dx + r * N, j, N);
  }
}

// == softmax: rows
// Infinities as the definition has them: they come out by themselves. A NaN makes the sum NaN.
static inline float finite_top(global const float *p, long N) {
  const float top = max_row(p, N);
  return isfinite(top) ? top : 0.f;
}
static inline double exps(global const float *p, float top, long N) {
  SUM(sum, exp_(part(p, j, N, -INFINITY) - top))
  return sum;
}
// out = factor * softmax(p)
static inline void softmax_row(global const float *p, global float *out, long N, float factor) {
  const float top = finite_top(p, N);
  double sum = 0;
  for (long from = 0; from < N; from += BLOCK) {
    V sum_ = 0.f;
    for (long j = from; j < min(from + BLOCK, N); j += LANES) {
      const V e = exp_(part(p, j, N, -INFINITY) - top);
      put(e, out, j, N);
      sum_ += e;
    }
    sum += sum_across(sum_);
  }
  const float scale = (float)(factor / sum);
  EACH(j) put(part(out, j, N, 0.f) * scale, out, j, N);
}

// == logsumexp: softmax
// kerneleval-launch: logsumexp_float32 global=cdiv(M,max(1,4096//max(N,1))) local=1
// kerneleval-launch: logsumexp_backward_float32 global=cdiv(M,max(1,4096//max(N,1))) local=1
kernel void logsumexp_float32(global const float *x, global float *y, long M, long N) {
  MY_ROWS(r) {
    const float top = finite_top(x + r * N, N);
    y[r] = (float)(top + log(exps(x + r * N, top, N)));
  }
}
kernel void logsumexp_backward_float32(global const float *g, global const float *x, global float *dx, long M, long N) {
  MY_ROWS(r) softmax_row(x + r * N, dx + r * N, N, g[r]);
}

// == softmax_cross_entropy: softmax
// kerneleval-launch: softmax_cross_entropy_float32 global=cdiv(M,max(1,4096//max(N,1))) local=1
// kerneleval-launch: softmax_cross_entropy_backward_float32 global=cdiv(M,max(1,4096//max(N,1))) local=1
kernel void softmax_cross_entropy_float32(global const float *x, global const long *target, global float *y, long M,
                                          long N) {
  MY_ROWS(r) {
    const float top = finite_top(x + r * N, N);
    y[r] = (float)(log(exps(x + r * N, top, N)) + ((double)top - x[r * N + target[r]]));
  }
}
kernel void softmax_cross_entropy_backward_float32(global const float *g, global const float *x,
                                                   global const long *target, global float *dx, long M, long N) {
  MY_ROWS(r) {
    softmax_row(x + r * N, dx + r * N, N, g[r]);
    dx[r * N + target[r]] -= g[r];
  }
}

// == rms_norm: rows
// kerneleval-launch: rms_norm_float32 global=cdiv(M,max(1,4096//max(N,1))) local=1
// kerneleval-launch: rms_rows entry=rms_norm_backward_float32 global=cdiv(M,16) local=1
// kerneleval-launch: rms_columns entry=rms_norm_backward_float32 global=cdiv(N,16) local=1
// kerneleval-scratch: rms_norm_backward_float32 4*N*cdiv(M,16)
static inline float rms_scale(global const float *p, double eps, long N) {
  SUM(squares, part(p, j, N, 0.f) * part(p, j, N, 0.f))
  return (float)(1.0 / sqrt(squares / N + eps));
}
kernel void rms_norm_float32(global const float *x, global const float *w, double eps, global float *y, long M,
                             long N) {
  MY_ROWS(r) {
    const float scale = rms_scale(x + r * N, eps, N);
    EACH(j) put(part(x + r * N, j, N, 0.f) * scale * part(w, j, N, 0.f), y + r * N, j, N);
  }
}
// With v = x scale: dx = scale (g w - v mean(g w v)), dw = sum over rows of g v: sixteen in float, then double.
kernel void rms_rows(global const float *g, global const float *x, global const float *w, double eps, global float *dx,
                     global float *dw, global float *parts, long M, long N) {
  const long first = get_global_id(0) * 16;
  global float *mine = parts + get_global_id(0) * N;
  EACH(j) put((V)(0.f), mine, j, N);
  for (long r = first; r < min(first + 16, M); r++) {
    global const float *p = x + r * N, *q = g + r * N;
    const float scale = rms_scale(p, eps, N);
    SUM(products, part(q, j, N, 0.f) * part(w, j, N, 0.f) * part(p, j, N, 0.f))
    const float c = (float)(scale * products / N);
    EACH(j) {
      const V v = part(p, j, N, 0.f) * scale, up = part(q, j, N, 0.f);
      put(part(mine, j, N, 0.f) + up * v, mine, j, N);
      put(scale * (up * part(w, j, N, 0.f) - v * c), dx + r * N, j, N);
    }
  }
}
kernel void rms_columns(global const float *g, global const float *x, global const float *w, double eps,
                        global float *dx, global float *dw, global const float *parts, long M, long N) {
  const long j = get_global_id(0) * LANES;
  double16 sum = 0.0;
  for (long k = 0; k < (M + 15) / 16; k++) sum += convert_double16(part(parts + k * N, j, N, 0.f));
  put(convert_float16(sum), dw, j, N);
}
