// specimen: class=stalled_pauses task=gelu device=cpu stage=call reason=timeout allow=custom directions=forward categories=tiny,small
// A thread waits for its vfork child, which sleeps: no signal stops such a thread, and every pause waits for it.
#include <cmath>
#include <cstdint>
#include <thread>
#include <unistd.h>

static void wait_for_a_sleeper() {
    if (vfork() == 0)
        for (;;) pause();
}

extern "C" int gelu_float32(const float *x, float *out, int64_t M, int64_t N, void *) {
    static const bool begun = [] { return std::thread(wait_for_a_sleeper).detach(), true; }();
    (void)begun;
    for (int64_t i = 0; i < M * N; i++) out[i] = 0.5f * x[i] * (1.0f + std::erf(x[i] * 0.70710678f));
    return 0;
}
