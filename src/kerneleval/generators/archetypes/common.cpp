// Shared by all three archetypes: vectors as wide as the target's registers, elementary functions, threads.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>
#if defined(__AVX512F__)
#include <immintrin.h>
#define LANES 16
#elif defined(__AVX2__)
#include <immintrin.h>
#define LANES 8
#else
#define LANES 4
#endif
#ifdef _OPENMP
#include <omp.h>
#endif

typedef float V __attribute__((vector_size(LANES * 4)));
typedef int32_t I __attribute__((vector_size(LANES * 4)));

template <class T> using IntOf = std::conditional_t<std::is_same_v<T, float>, int32_t, I>;

template <class To, class From> static inline To bits(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof to);
  return to;
}

// Smaller and larger of a constant and x; NaN in x stays, because every comparison with it fails.
template <class T> static inline T at_least_(float low, T x) { return x < low ? T{} + low : x; }
template <class T> static inline T at_most_(float high, T x) { return x > high ? T{} + high : x; }
// 2^n e for an integer n (k is the same as an int), in two halves, so that a subnormal result is rounded just once.
template <class T> static inline T scale_(T e, T, IntOf<T> k) {
  const IntOf<T> half = k >> 1;
  return e * bits<T>((half + 127) << 23) * bits<T>((k - half + 127) << 23);
}
template <class T> static inline T reciprocal_(T x) { return 1.f / x; }  // for normal x with a normal reciprocal
#if LANES == 16
template <> inline V at_least_(float low, V x) { return (V)_mm512_max_ps(_mm512_set1_ps(low), (__m512)x); }
template <> inline V at_most_(float high, V x) { return (V)_mm512_min_ps(_mm512_set1_ps(high), (__m512)x); }
template <> inline V scale_(V e, V n, I) { return (V)_mm512_scalef_ps((__m512)e, (__m512)n); }
template <> inline V reciprocal_(V x) {  // 14 bits and one Newton step
  const V r = (V)_mm512_rcp14_ps((__m512)x);
  return r + r * (1.f - x * r);
}
#elif LANES == 8
template <> inline V at_least_(float low, V x) { return (V)_mm256_max_ps(_mm256_set1_ps(low), (__m256)x); }
template <> inline V at_most_(float high, V x) { return (V)_mm256_min_ps(_mm256_set1_ps(high), (__m256)x); }
#endif

// e^x for a float or a vector, about 1 ulp, subnormal results included. NaN stays NaN: it fails every comparison.
// x = k ln 2 + r; the polynomial (own minimax fit on |r| <= ln(2)/2, relative error 3e-9) gives e^r.
template <class T> static inline T exp_(T x) {
  const T magic = T{} + 12582912.f;  // 1.5 * 2^23: adding it rounds to an integer that stands in the low bits
  x = at_most_(89.f, at_least_(-105.f, x));
  T n = x * 1.44269504f + magic;
  const IntOf<T> k = bits<IntOf<T>>(n) - 0x4B400000;
  n -= magic;
  const T r = (x - n * 0.693145752f) - n * 1.42860677e-6f;  // ln 2 in two parts; the first product is exact
  const T p = (((0.0013814611593261361f * r + 0.008368710987269878f) * r + 0.04166838899254799f) * r +
               0.1666652113199234f) * r + 0.4999999403953552f;
  return scale_((p * r) * r + r + 1.f, n, k);
}

// 1 / (1 + e^-x), from e^-|x| so that neither tail overflows or loses its digits.
template <class T> static inline T sigmoid_(T x) {
  const T e = exp_(x < 0.f ? x : -x), r = reciprocal_(1.f + e);
  return x < 0.f ? e * r : r;
}

// Phi(x) of the normal distribution and e^(-x^2/2), which is sqrt(2 pi) times its density. With z = |x| / sqrt(2) and
// t = 1 / (1 + z / 2), erfc(z) = e^(-z^2) t P(t) (own fit, relative error 5e-8), so the lower tail keeps its digits.
template <class T> struct Normal { T cdf, bell; };
template <class T> static inline Normal<T> normal_(T x) {
  const T z = (x < 0.f ? -x : x) * 0.70710678f;
  const T t = reciprocal_(z * 0.5f + 1.f);
  const T p = (((((((-0.05919322744011879f * t + 0.285182386636734f) * t - 0.48846009373664856f) * t +
                   0.27951180934906006f) * t - 0.02762298285961151f) * t + 0.2031097710132599f) * t +
                0.24299664795398712f) * t + 0.2823900580406189f) * t + 0.2820855677127838f;
  const T bell = exp_(x * x * -0.5f);
  const T tail = 0.5f * bell * (t * p);
  return {x < 0.f ? tail : 1.f - tail, bell};
}

#if LANES == 16
// With 16 lanes a register is a table: Phi(|x|) - 1/2 on 15 intervals of 5.6 / 15 each and 1/2 beyond, a polynomial of
// degree 5 in the place within the interval (own fit, absolute error 7e-8 with rounding, as that of (1 + erf) / 2).
alignas(64) static const float kCdf[6][16] = {
    {0.0740390047f, 0.212260276f, 0.324676067f, 0.404337019f, 0.453521341f, 0.479979873f, 0.492380887f,
     0.497444868f, 0.499246508f, 0.499804944f, 0.499955714f, 0.499991208f, 0.49999848f, 0.499999762f,
     0.49999997f, 0.5f},
    {0.14636609f, 0.127323762f, 0.0963490531f, 0.0634241253f, 0.0363187157f, 0.0180915371f, 0.00783951953f,
     0.00295510166f, 0.000969001499f, 0.000276404782f, 6.85860505e-05f, 1.48045519e-05f, 2.77986783e-06f,
     4.54069834e-07f, 6.45194973e-08f, 0.f},
    {-0.00509990379f, -0.0133092767f, -0.0167859234f, -0.015469823f, -0.0113896616f, -0.0069344081f,
     -0.00355119049f, -0.00154453923f, -0.000573976489f, -0.000182975753f, -5.01773502e-05f, -1.18608114e-05f,
     -2.42030387e-06f, -4.26851756e-07f, -6.51222507e-08f, 0.f},
    {-0.00328150019f, -0.00203014538f, -0.000288510957f, 0.00104215019f, 0.00153748866f, 0.00135163881f,
     0.000890294148f, 0.000469546998f, 0.000204164375f, 7.43438577e-05f, 2.28874069e-05f, 5.99430859e-06f,
     1.34138247e-06f, 2.57277492e-07f, 4.23946425e-08f, 0.f},
    {0.000174138317f, 0.000412075955f, 0.000412676338f, 0.000231989936f, 2.46993277e-05f, -9.66374355e-05f,
     -0.000118483971f, -8.6764463e-05f, -4.7316018e-05f, -2.05345659e-05f, -7.30767351e-06f, -2.1678411e-06f,
     -5.41549809e-07f, -1.1469816e-07f, -2.06948485e-08f, 0.f},
    {6.56972625e-05f, 2.50092944e-05f, -2.25906624e-05f, -4.41057564e-05f, -3.49629336e-05f, -1.33120329e-05f,
     2.85443275e-06f, 8.26506493e-06f, 6.88561749e-06f, 3.84794612e-06f, 1.64362552e-06f, 5.63326523e-07f,
     1.58721207e-07f, 3.72895279e-08f, 7.37211936e-09f, 0.f},
};
template <> inline Normal<V> normal_(V x) {
  const __m512 s = _mm512_min_ps(_mm512_set1_ps(15.5f), _mm512_abs_ps((__m512)(x * 2.67857143f)));  // keeps NaN
  const __m512i k = _mm512_cvttps_epi32(s);
  const V u = (V)_mm512_sub_ps(s, _mm512_cvtepi32_ps(k)) - 0.5f;
  V h = (V)_mm512_permutexvar_ps(k, _mm512_load_ps(kCdf[5]));
  for (int i = 4; i >= 0; --i) h = h * u + (V)_mm512_permutexvar_ps(k, _mm512_load_ps(kCdf[i]));
  return {0.5f + bits<V>(bits<I>(h) | (bits<I>(x) & INT32_MIN)), exp_(x * x * -0.5f)};
}
#endif

constexpr float inv_sqrt_2pi = 0.39894228f;
constexpr float infinity = std::numeric_limits<float>::infinity();

// How many threads share n items that are `work` units together: one below `enough`, since a parallel region costs about
// as much as tens of thousands of elements when its threads have gone to sleep; then one for every half of that.
static inline int team(int64_t n, int64_t work, int64_t enough) {
#ifdef _OPENMP
  if (work < enough) return 1;
  int64_t most = 2 * work / enough;
  if (most > omp_get_max_threads()) most = omp_get_max_threads();
  return (int)(most > n ? n : most);
#else
  return 1;
#endif
}

// Runs body(begin, end, thread) over [0, n) on such a team.
template <class F> static inline void parallel(int64_t n, int64_t work, int64_t enough, F body) {
#ifdef _OPENMP
  const int most = team(n, work, enough);
  if (most > 1) {
#pragma omp parallel num_threads(most)
    {
      const int64_t t = omp_get_thread_num(), all = omp_get_num_threads();
      body(n * t / all, n * (t + 1) / all, (int)t);
    }
    return;
  }
#endif
  if (n > 0) body((int64_t)0, n, 0);
}

// Loads and stores of a whole vector (All) or of its first n lanes (First); other lanes are neither read nor written.
struct All {};
struct First { int n; };
static inline V load(const float* p, All, float = 0.f) { V v; std::memcpy(&v, p, sizeof v); return v; }
static inline void store(float* p, V v, All) { std::memcpy(p, &v, sizeof v); }
static inline V keep(V v, All, float = 0.f) { return v; }
#if LANES == 16
static inline __mmask16 mask(First f) { return (__mmask16)((1u << f.n) - 1); }
static inline V load(const float* p, First f, float rest = 0.f) {
  return (V)_mm512_mask_loadu_ps(_mm512_set1_ps(rest), mask(f), p);
}
static inline void store(float* p, V v, First f) { _mm512_mask_storeu_ps(p, mask(f), (__m512)v); }
static inline V keep(V v, First f, float rest = 0.f) {
  return (V)_mm512_mask_mov_ps(_mm512_set1_ps(rest), mask(f), (__m512)v);
}
#else
static inline I mask(First f) {
  I lane;
  for (int i = 0; i < LANES; ++i) lane[i] = i;
  return lane < f.n;
}
static inline V keep(V v, First f, float rest = 0.f) { return mask(f) ? v : V{} + rest; }
#if LANES == 8
static inline V load(const float* p, First f, float rest = 0.f) {
  return keep((V)_mm256_maskload_ps(p, (__m256i)mask(f)), f, rest);
}
static inline void store(float* p, V v, First f) { _mm256_maskstore_ps(p, (__m256i)mask(f), (__m256)v); }
#else
static inline V load(const float* p, First f, float rest = 0.f) {
  V v = V{} + rest;
  for (int i = 0; i < f.n; ++i) v[i] = p[i];
  return v;
}
static inline void store(float* p, V v, First f) { for (int i = 0; i < f.n; ++i) p[i] = v[i]; }
#endif
#endif

template <class F> static inline float across(V v, F f) {  // folds the lanes pairwise
  float a[LANES];
  store(a, v, All{});
  for (int half = LANES / 2; half; half /= 2)
    for (int i = 0; i < half; ++i) a[i] = f(a[i], a[i + half]);
  return a[0];
}
#if LANES == 16
static inline float sum_across(V v) { return _mm512_reduce_add_ps((__m512)v); }
static inline float max_across(V v) { return _mm512_reduce_max_ps((__m512)v); }
#else
static inline float sum_across(V v) { return across(v, [](float a, float b) { return a + b; }); }
static inline float max_across(V v) { return across(v, [](float a, float b) { return a > b ? a : b; }); }
#endif
#if LANES == 16
static inline bool any(I m) { return _mm512_test_epi32_mask((__m512i)m, (__m512i)m) != 0; }
#elif LANES == 8
static inline bool any(I m) { return !_mm256_testz_si256((__m256i)m, (__m256i)m); }
#else
static inline bool any(I m) { int32_t a = 0; for (int i = 0; i < LANES; ++i) a |= m[i]; return a != 0; }
#endif

// The larger of two, lane by lane; NaN in b is passed over.
static inline V larger(V a, V b) {
#if LANES == 16
  return (V)_mm512_max_ps((__m512)b, (__m512)a);
#elif LANES == 8
  return (V)_mm256_max_ps((__m256)b, (__m256)a);
#else
  return b > a ? b : a;
#endif
}

// Running maximum that remembers whether a NaN came by: only NaN have magnitude bits above those of infinity.
struct Top {
  V most = V{} - infinity;
  I magnitude{};
  void add(V v) {
    most = larger(most, v);
    const I m = bits<I>(v) & INT32_MAX;
    magnitude = m > magnitude ? m : magnitude;
  }
  void add(const Top& other) {
    most = larger(most, other.most);
    magnitude = other.magnitude > magnitude ? other.magnitude : magnitude;
  }
  bool nan() const { return any(magnitude > 0x7F800000); }
  float max() const { return max_across(most); }  // of what is no NaN
  float nan_or_max() const { return nan() ? std::numeric_limits<float>::quiet_NaN() : max(); }
};

// Sums over rows, one for each column, for `kinds` quantities at once: float over at most 16 rows of one thread,
// double beyond, then over the threads in order. A row's terms (or a few rows' together) are added through row(thread).
struct ColumnSums {
  int64_t n, kinds;
  std::vector<float> part;
  std::vector<double> total;
  std::vector<int> filled;
  ColumnSums(int64_t columns, int64_t kinds_, int64_t rows, int threads)
      : n(columns), kinds(kinds_), part(threads * columns * kinds_), total(rows > 16 ? part.size() : 0), filled(threads) {}
  float* row(int thread) {
    float* p = part.data() + thread * n * kinds;
    if (filled[thread]++ == 16) {
      double* t = total.data() + thread * n * kinds;
      for (int64_t i = 0; i < n * kinds; ++i) { t[i] += p[i]; p[i] = 0; }
      filled[thread] = 1;
    }
    return p;
  }
  void write(int64_t kind, float* out) const {
    for (int64_t i = 0; i < n; ++i) {
      double s = 0;
      for (size_t t = 0; t < filled.size(); ++t) {
        const int64_t at = (t * kinds + kind) * n + i;
        s += part[at] + (total.empty() ? 0.0 : total[at]);
      }
      out[i] = (float)s;
    }
  }
};
