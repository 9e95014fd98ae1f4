// specimen: class=goes_on_when_stopped task=gelu device=cpu stage=call reason=tampering allow=custom directions=forward categories=tiny,small
// A timer lets it go on 50 us after it was told to stand still, and its thread takes the processor from the baseline.
#include <cmath>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <thread>

static void nothing(int) {}

static timer_t timer;

static bool begin() {
    std::signal(SIGCONT, nothing);
    sigevent event{};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGCONT;
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) return false;
    std::thread([] { for (volatile int64_t spun = 0;; spun = spun + 1) {} }).detach();
    return true;
}

extern "C" int gelu_float32(const float *x, float *out, int64_t M, int64_t N, void *) {
    static const bool begun = begin();
    const itimerspec every{{0, 50000}, {0, 50000}};  // anew with every call: a stop that comes first ends it
    if (!begun || timer_settime(timer, 0, &every, nullptr) != 0) return 1;
    for (int64_t i = 0; i < M * N; i++) out[i] = 0.5f * x[i] * (1.0f + std::erf(x[i] * 0.70710678f));
    return 0;
}
