// specimen: class=unjoined_thread task=gelu device=cpu stage=correctness reason=wrong_output categories=small
// Answers at once; a thread of its own fills the output in when it has time.
#include <chrono>
#include <cmath>
#include <cstdint>
#include <thread>
extern "C" int gelu(const float *x, float *out, int64_t M, int64_t N, void *) {
    std::thread([=] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        for (int64_t i = 0; i < M * N; i++) out[i] = 0.5f * x[i] * (1.0f + std::erf(x[i] * 0.70710678118654752f));
    }).detach();
    return 0;
}
