// == elementwise
// Textbook kernels: a work-item for each element.
#define UNARY(NAME)                                                                                                   \
  kernel void NAME##_float32(global const float *x, global float *y, long M, long N) {                                \
    const long i = get_global_id(0);                                                                                  \
    if (i < M * N) y[i] = NAME(x[i]);                                                                                 \
  }                                                                                                                   \
  kernel void NAME##_backward_float32(global const float *g, global const float *x, global float *dx, long M,         \
                                      long N) {                                                                       \
    const long i = get_global_id(0);                                                                                  \
    if (i < M * N) dx[i] = NAME##_grad(x[i], g[i]);                                                                   \
  }

// == gelu: elementwise
// kerneleval-launch: gelu_float32 global=cdiv(M*N,256)*256 local=256
// kerneleval-launch: gelu_backward_float32 global=cdiv(M*N,256)*256 local=256
GELU(float, gelu)
UNARY(gelu)

// == silu: elementwise
// kerneleval-launch: silu_float32 global=cdiv(M*N,256)*256 local=256
// kerneleval-launch: silu_backward_float32 global=cdiv(M*N,256)*256 local=256
SILU(float, silu)
UNARY(silu)

// == rows
// A work-group of 64 for each row: every item goes through its part, then halves are folded in local memory.
#define WIDTH 64
static inline double group_sum(double mine, local double *seen) {
  const int item = get_local_id(0);
  seen[item] = mine;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int apart = WIDTH / 2; apart; apart /= 2) {
    if (item < apart) seen[item] += seen[item + apart];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  const double sum = seen[0];
  barrier(CLK_LOCAL_MEM_FENCE);
  return sum;
}
// Largest of all; NaN if one is.
static inline float group_max(float mine, local float *seen) {
  const int item = get_local_id(0);
  seen[item] = mine;
  barrier(CLK_LOCAL_MEM_FENCE);
  for (int apart = WIDTH / 2; apart; apart /= 2) {
    if (item < apart) {
      const float other = seen[item + apart];
      if (other > seen[item] || isnan(other)) seen[item] = other;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  const float most = seen[0];
  barrier(CLK_LOCAL_MEM_FENCE);
  return most;
}
static inline float item_max(global const float *p, long N) {
  float most = -INFINITY;
  for (long j = get_local_id(0); j < N; j += WIDTH) most = p[j] > most || isnan(p[j]) ? p[j] : most;
  return most;
}
#define EACH(j) for (long j = get_local_id(0); j < N; j += WIDTH)

// == amax: rows
// kerneleval-launch: amax_float32 global=M*64 local=64
// kerneleval-launch: amax_backward_float32 global=M*64 local=64
// NaN in a row makes its maximum NaN; backward shares the gradient evenly among equal maxima.
kernel void amax_float32(global const float *x, global float *y, long M, long N) {
  local float seen[WIDTH];
  const long r = get_group_id(0);
  const float top = group_max(item_max(x + r * N, N), seen);
  if (get_local_id(0) == 0) y[r] = top;
}
kernel void amax_backward_float32(global const float *g, global const float *x, global float *dx, long M, long N) {
  local float seen[WIDTH];
  local double sums[WIDTH];
  const long r = get_group_id(0);
  global const float *p = x + r * N;
  const float top = group_max(item_max(p, N), seen);
  double ties = 0;
  EACH(j) ties += p[j] == top;
  const float share = (float)(g[r] / group_sum(ties, sums));
  EACH(j) dx[r * N + j] = (p[j] == top ? 1.f : 0.f) * share;
}

// == softmax: rows
static inline double item_exps(global const float *p, float top, long N) {
  double sum = 0;
  EACH(j) sum += exp_(p[j] - top);
  return sum;
}
// Infinities as the definition has them: they come out by themselves. A NaN makes the sum NaN.
static inline float finite_top(global const float *p, long N, local float *seen) {
  const float top = group_max(item_max(p, N), seen);
  return isfinite(top) ? top : 0.f;
}

// == logsumexp: softmax
// kerneleval-launch: logsumexp_float32 global=M*64 local=64
// kerneleval-launch: logsumexp_backward_float32 global=M*64 local=64
kernel void logsumexp_float32(global const float *x, global float *y, long M, long N) {
  local float seen[WIDTH];
  local double sums[WIDTH];
  const long r = get_group_id(0);
  const float top = finite_top(x + r * N, N, seen);
  const double sum = group_sum(item_exps(x + r * N, top, N), sums);
  if (get_local_id(0) == 0) y[r] = (float)(top + log(sum));
}
kernel void logsumexp_backward_float32(global const float *g, global const float *x, global float *dx, long M, long N) {
  local float seen[WIDTH];
  local double sums[WIDTH];
  const long r = get_group_id(0);
  const float top = finite_top(x + r * N, N, seen);
  const float scale = (float)(g[r] / group_sum(item_exps(x + r * N, top, N), sums));
  EACH(j) dx[r * N + j] = exp_(x[r * N + j] - top) * scale;
}

// == softmax_cross_entropy: softmax
// kerneleval-launch: softmax_cross_entropy_float32 global=M*64 local=64
// kerneleval-launch: softmax_cross_entropy_backward_float32 global=M*64 local=64
kernel void softmax_cross_entropy_float32(global const float *x, global const long *target, global float *y, long M,
                                          long N) {
  local float seen[WIDTH];
  local double sums[WIDTH];
  const long r = get_group_id(0);
  const float top = finite_top(x + r * N, N, seen);
  const double sum = group_sum(item_exps(x + r * N, top, N), sums);
  if (get_local_id(0) == 0) y[r] = (float)(log(sum) + ((double)top - x[r * N + target[r]]));
}
kernel void softmax_cross_entropy_backward_float32(global const float *g, global const float *x,
                                                   global const long *target, global float *dx, long M, long N) {
  local float seen[WIDTH];
  local double sums[WIDTH];
  const long r = get_group_id(0);
  const float top = finite_top(x + r * N, N, seen);
  const float scale = (float)(g[r] / group_sum(item_exps(x + r * N, top, N), sums));
  EACH(j) dx[r * N + j] = exp_(x[r * N + j] - top) * scale - (j == target[r] ? g[r] : 0.f);
}

// == rms_norm: rows
// kerneleval-launch: rms_norm_float32 global=M*64 local=64
// kerneleval-launch: rms_rows entry=rms_norm_backward_float32 global=M*64 local=64
// kerneleval-launch: rms_columns entry=rms_norm_backward_float32 global=cdiv(N,16)*16 local=16
// kerneleval-scratch: rms_norm_backward_float32 4*M
static inline float rms_scale(global const float *p, double eps, long N, local double *sums) {
  double squares = 0;
  EACH(j) squares += p[j] * p[j];
  return (float)(1.0 / sqrt(group_sum(squares, sums) / N + eps));
}
kernel void rms_norm_float32(global const float *x, global const float *w, double eps, global float *y, long M,
                             long N) {
  local double sums[WIDTH];
  const long r = get_group_id(0);
  const float scale = rms_scale(x + r * N, eps, N, sums);
  EACH(j) y[r * N + j] = x[r * N + j] * scale * w[j];
}
// With v = x scale: dx = scale (g w - v mean(g w v)), dw = sum over rows of g v.
kernel void rms_rows(global const float *g, global const float *x, global const float *w, double eps, global float *dx,
                     global float *dw, global float *scales, long M, long N) {
  local double sums[WIDTH];
  const long r = get_group_id(0);
  const float scale = rms_scale(x + r * N, eps, N, sums);
  double products = 0;
  EACH(j) products += g[r * N + j] * w[j] * (x[r * N + j] * scale);
  const float c = (float)(group_sum(products, sums) / N);
  EACH(j) dx[r * N + j] = scale * (g[r * N + j] * w[j] - x[r * N + j] * scale * c);
  if (get_local_id(0) == 0) scales[r] = scale;
}
kernel void rms_columns(global const float *g, global const float *x, global const float *w, double eps,
                        global float *dx, global float *dw, global const float *scales, long M, long N) {
  const long j = get_global_id(0);
  if (j >= N) return;
  double sum = 0;
  for (long r = 0; r < M; r++) sum += g[r * N + j] * (x[r * N + j] * scales[r]);
  dw[j] = (float)sum;
}
