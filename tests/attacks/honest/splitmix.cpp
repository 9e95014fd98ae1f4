// specimen: class=own_generator task=rand device=cpu verdict=passed categories=tiny,small,medium dtypes=float32
// Every number by hashing the seed and its place.
#include <cstdint>

static uint64_t mixed(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

extern "C" int rand_float32(const float*, const int64_t* seed, int64_t rows, int64_t columns, float* out, int64_t,
                            int64_t, void*) {
  const uint64_t key = mixed(static_cast<uint64_t>(*seed) + 0x9e3779b97f4a7c15ull);
  for (int64_t i = 0; i < rows * columns; ++i) out[i] = static_cast<float>(mixed(key + i * 0x9e3779b97f4a7c15ull) >> 40) * 0x1p-24f;
  return 0;
}
