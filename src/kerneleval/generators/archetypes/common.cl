// Shared by all three archetypes: elementary functions of one float and of sixteen.
typedef float16 V;
typedef int16 I;
#define LANES 16

// e^x, about 1 ulp, subnormal results included; NaN stays, because every comparison with it fails. x = k ln 2 + r, and
// the polynomial (own minimax fit on |r| <= ln(2)/2, relative error 3e-9) gives e^r; 2^k in halves, rounded just once.
// 1 / (1 + e^-x), from e^-|x| so that neither tail overflows or loses its digits.
// Phi(x) of the normal distribution and, through `bell`, e^(-x^2/2): with z = |x| / sqrt(2) and t = 1 / (1 + z / 2),
// erfc(z) = e^(-z^2) t P(t) (own fit, relative error 5e-8), so the lower tail keeps its digits.
#define ELEMENTARY(T, K, as_T, as_K)                                                                                  \
  static inline T __attribute__((overloadable)) exp_(T x) {                                                           \
    const float magic = 12582912.f; /* 1.5 * 2^23: adding it rounds to an integer that stands in the low bits */      \
    x = x < -105.f ? (T)(-105.f) : x;                                                                                 \
    x = x > 89.f ? (T)(89.f) : x;                                                                                     \
    T n = x * 1.44269504f + magic;                                                                                    \
    const K k = as_K(n) - 0x4B400000, half_k = k >> 1;                                                                \
    n -= magic;                                                                                                       \
    const T r = (x - n * 0.693145752f) - n * 1.42860677e-6f;                                                          \
    const T p = (((0.0013814611593261361f * r + 0.008368710987269878f) * r + 0.04166838899254799f) * r +              \
                 0.1666652113199234f) * r + 0.4999999403953552f;                                                      \
    return ((p * r) * r + r + 1.f) * as_T((half_k + 127) << 23) * as_T((k - half_k + 127) << 23);                     \
  }                                                                                                                   \
  static inline T __attribute__((overloadable)) sigmoid_(T x) {                                                       \
    const T e = exp_(x < 0.f ? x : -x), r = 1.f / (1.f + e);                                                          \
    return x < 0.f ? e * r : r;                                                                                       \
  }                                                                                                                   \
  static inline T __attribute__((overloadable)) normal_(T x, T *bell) {                                               \
    const T t = 1.f / ((x < 0.f ? -x : x) * (0.5f * 0.70710678f) + 1.f);                                              \
    const T p = (((((((-0.05919322744011879f * t + 0.285182386636734f) * t - 0.48846009373664856f) * t +              \
                     0.27951180934906006f) * t - 0.02762298285961151f) * t + 0.2031097710132599f) * t +               \
                  0.24299664795398712f) * t + 0.2823900580406189f) * t + 0.2820855677127838f;                         \
    *bell = exp_(x * x * -0.5f);                                                                                      \
    const T tail = 0.5f * *bell * (t * p);                                                                            \
    return x < 0.f ? tail : 1.f - tail;                                                                               \
  }
ELEMENTARY(float, int, as_float, as_int)
ELEMENTARY(V, I, as_float16, as_int16)
#define INV_SQRT_2PI 0.39894228f

// f(v), and f(v, up) with the upstream gradient, for one float (F) and for sixteen (V).
#define GELU(T, NAME)                                                                                                 \
  static inline T __attribute__((overloadable)) NAME(T v) { T bell; return v * normal_(v, &bell); }                   \
  static inline T __attribute__((overloadable)) NAME##_grad(T v, T up) {                                              \
    T bell;                                                                                                           \
    const T cdf = normal_(v, &bell);                                                                                  \
    return up * (cdf + v * bell * INV_SQRT_2PI);                                                                      \
  }
#define SILU(T, NAME)                                                                                                 \
  static inline T __attribute__((overloadable)) NAME(T v) { return v * sigmoid_(v); }                                 \
  static inline T __attribute__((overloadable)) NAME##_grad(T v, T up) {                                              \
    const T s = sigmoid_(v);                                                                                          \
    return up * s * (1.f + v * (1.f - s));                                                                            \
  }

// Sum and largest of sixteen lanes.
static inline float sum_across(V v) {
  const float8 a = v.lo + v.hi;
  const float4 b = a.lo + a.hi;
  return (b.x + b.z) + (b.y + b.w);
}
static inline float max_across(V v) {
  const float8 a = v.lo > v.hi ? v.lo : v.hi;
  const float4 b = a.lo > a.hi ? a.lo : a.hi;
  const float2 c = b.lo > b.hi ? b.lo : b.hi;
  return c.x > c.y ? c.x : c.y;
}
