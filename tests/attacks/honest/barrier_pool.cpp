// specimen: class=native_threads task=gelu device=cpu verdict=passed distributions=standard allow=custom categories=tiny,small directions=forward
// Two halves in two threads that meet at a barrier of the standard library, which waits by a futex.
#include <barrier>
#include <cmath>
#include <cstdint>
#include <thread>

extern "C" int gelu_float32(const float *x, float *out, int64_t M, int64_t N, void *) {
    const int64_t count = M * N, middle = count / 2;
    std::barrier<> done(2);
    auto part = [&](int64_t first, int64_t stop) {
        for (int64_t i = first; i < stop; i++) out[i] = 0.5f * x[i] * (1.0f + std::erf(x[i] * 0.70710678f));
        done.arrive_and_wait();
    };
    std::thread helper(part, middle, count);
    part(0, middle);
    helper.join();
    return 0;
}
