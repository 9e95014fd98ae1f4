// specimen: class=quantised_products task=matmul_w8a8 device=cpu verdict=passed categories=tiny,small dtypes=float32
// Eight bits and integer sums in plain C++: scales first, then one row at a time.
#include <cmath>
#include <cstdint>
#include <vector>

static float scale_of(const float* values, int64_t count, int64_t step) {
  float most = 0;
  for (int64_t i = 0; i < count; ++i) most = std::fmax(most, std::fabs(values[i * step]));
  return most > 0 ? most / 127.0f : 1.0f;
}

static int8_t narrowed(float value, float scale) {
  return static_cast<int8_t>(std::fmin(127.0f, std::fmax(-127.0f, std::nearbyint(value / scale))));
}

extern "C" int matmul_w8a8_float32(const float* x, const float* w, float* out, int64_t m, int64_t k, int64_t n, void*) {
  std::vector<int8_t> columns(k * n), row(k);
  std::vector<float> scales(n);
  for (int64_t j = 0; j < n; ++j) {
    scales[j] = scale_of(w + j, k, n);
    for (int64_t p = 0; p < k; ++p) columns[j * k + p] = narrowed(w[p * n + j], scales[j]);
  }
  for (int64_t i = 0; i < m; ++i) {
    const float scale = scale_of(x + i * k, k, 1);
    for (int64_t p = 0; p < k; ++p) row[p] = narrowed(x[i * k + p], scale);
    for (int64_t j = 0; j < n; ++j) {
      int32_t sum = 0;
      for (int64_t p = 0; p < k; ++p) sum += row[p] * columns[j * k + p];
      out[i * n + j] = static_cast<float>(sum) * scale * scales[j];
    }
  }
  return 0;
}
