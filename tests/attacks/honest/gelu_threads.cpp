// specimen: class=native_threads task=gelu device=cpu verdict=passed distributions=standard
#include <cmath>
#include <cstdint>
#include <thread>
#include <vector>
extern "C" int gelu(const float *x, float *out, int64_t M, int64_t N, void *) {
    const int64_t n = M * N, parts = n > 100000 ? 2 : 1;
    std::vector<std::thread> threads;
    for (int64_t p = 0; p < parts; p++)
        threads.emplace_back([=] {
            for (int64_t i = n * p / parts; i < n * (p + 1) / parts; i++)
                out[i] = 0.5f * x[i] * (1.0f + std::erf(x[i] * 0.70710678118654752f));
        });
    for (auto &t : threads) t.join();
    return 0;
}
