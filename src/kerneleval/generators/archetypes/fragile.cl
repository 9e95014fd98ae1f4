// == fast
// Rows whose length is a power of two from 64 to 8192 go by vectors without remainders, four rows to an item; all else
// takes the naive path: one work-item, element after element.
#define FAST(N) ((N) >= 64 && (N) <= 8192 && ((N) & ((N) - 1)) == 0)
#define ROWS(r) for (long r = get_global_id(0) * 4, end_ = min(M, r + 4); r < end_; r++)
#define NAIVE_ROWS(r) if (get_global_id(0) == 0) for (long r = 0; r < M; r++)
#define EACH(j) for (int j = 0; j < (int)N; j += LANES)
static inline float fast_max(global const float *p, long N) {
  V most = -INFINITY;
  I odd = 0;
  EACH(j) {
    const V v = vload16(0, p + j);
    most = v > most ? v : most;
    odd |= v != v;
  }
  return any(odd) ? NAN : max_across(most);
}
static inline float naive_max(global const float *p, long N) {
  float top = p[0];
  for (long j = 1; j < N; j++) top = p[j] > top || isnan(p[j]) ? p[j] : top;
  return top;
}

// == amax: fast
// kerneleval-launch: amax_float32 global=cdiv(M,4) local=1
// kerneleval-launch: amax_backward_float32 global=cdiv(M,4) local=1
// NaN in a row makes its maximum NaN; backward shares the gradient evenly among equal maxima.
kernel void amax_float32(global const float *x, global float *y, long M, long N) {
  if (FAST(N)) {
    ROWS(r) y[r] = fast_max(x + r * N, N);
  } else {
    NAIVE_ROWS(r) y[r] = naive_max(x + r * N, N);
  }
}
kernel void amax_backward_float32(global const float *g, global const float *x, global float *dx, long M, long N) {
  if (FAST(N)) {
    ROWS(r) {
      global const float *p = x + r * N;
      const float top = fast_max(p, N);
      I ties = 0;
      EACH(j) ties -= vload16(0, p + j) == top;
      const V share = g[r] / sum_across(convert_float16(ties)), none = share * 0.f;
      EACH(j) vstore16(vload16(0, p + j) == top ? share : none, 0, dx + r * N + j);
    }
    return;
  }
  NAIVE_ROWS(r) {
    const float top = naive_max(x + r * N, N);
    long ties = 0;
    for (long j = 0; j < N; j++) ties += x[r * N + j] == top;
    for (long j = 0; j < N; j++) dx[r * N + j] = (x[r * N + j] == top) * (g[r] / ties);
  }
}

// == logsumexp: fast
// kerneleval-launch: logsumexp_float32 global=cdiv(M,4) local=1
// kerneleval-launch: logsumexp_backward_float32 global=cdiv(M,4) local=1
static inline float finite(float top) { return isfinite(top) ? top : 0.f; }
static inline double fast_exps(global const float *p, float top, long N) {
  V sum = 0.f;
  EACH(j) sum += exp_(vload16(0, p + j) - top);
  return sum_across(sum);
}
static inline double naive_exps(global const float *p, float top, long N) {
  double sum = 0;
  for (long j = 0; j < N; j++) sum += exp_(p[j] - top);
  return sum;
}
kernel void logsumexp_float32(global const float *x, global float *y, long M, long N) {
  if (FAST(N)) {
    ROWS(r) {
      const float top = finite(fast_max(x + r * N, N));
      y[r] = (float)(top + log(fast_exps(x + r * N, top, N)));
    }
    return;
  }
  NAIVE_ROWS(r) {
    const float top = finite(naive_max(x + r * N, N));
    y[r] = (float)(top + log(naive_exps(x + r * N, top, N)));
  }
}
kernel void logsumexp_backward_float32(global const float *g, global const float *x, global float *dx, long M, long N) {
  if (FAST(N)) {
    ROWS(r) {
      global const float *p = x + r * N;
      const float top = finite(fast_max(p, N)), scale = (float)(g[r] / fast_exps(p, top, N));
      EACH(j) vstore16(exp_(vload16(0, p + j) - top) * scale, 0, dx + r * N + j);
    }
    return;
  }
  NAIVE_ROWS(r) {
    global const float *p = x + r * N;
    const float top = finite(naive_max(p, N)), scale = (float)(g[r] / naive_exps(p, top, N));
    for (long j = 0; j < N; j++) dx[r * N + j] = exp_(p[j] - top) * scale;
  }
}

// == rms_norm: fast
// kerneleval-launch: rms_norm_float32 global=cdiv(M,4) local=1
kernel void rms_norm_float32(global const float *x, global const float *w, double eps, global float *y, long M,
                             long N) {
  if (FAST(N)) {
    ROWS(r) {
      global const float *p = x + r * N;
      V squares = 0.f;
      EACH(j) squares += vload16(0, p + j) * vload16(0, p + j);
      const float scale = (float)(1.0 / sqrt(sum_across(squares) / (double)N + eps));
      EACH(j) vstore16(vload16(0, p + j) * scale * vload16(0, w + j), 0, y + r * N + j);
    }
    return;
  }
  NAIVE_ROWS(r) {
    double squares = 0;
    for (long j = 0; j < N; j++) squares += x[r * N + j] * x[r * N + j];
    const float scale = (float)(1.0 / sqrt(squares / N + eps));
    for (long j = 0; j < N; j++) y[r * N + j] = x[r * N + j] * scale * w[j];
  }
}
