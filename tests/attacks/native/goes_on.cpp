// specimen: class=goes_on_when_stopped task=gelu device=cpu stage=call reason=tampering allow=custom directions=forward categories=tiny,small
// Timers let it go on soon after it was told to stand still, and its thread takes the processor from the baseline.
#include <cmath>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <thread>

static timer_t timers[12];

static void nothing(int) {}

// Every 50 us to 0.1 s, set anew all the time: a stop ends a timer whose signal is on its way, and a busy machine has
// many on their way.
static void take_the_processor() {
    for (volatile int64_t spun = 0;; spun = spun + 1)
        for (int k = 0; spun % 1000 == 0 && k < 12; k++) {
            const itimerspec every{{0, 50000L << k}, {0, 50000L << k}};
            timer_settime(timers[k], 0, &every, nullptr);
        }
}

static bool begin() {
    std::signal(SIGCONT, nothing);
    sigevent event{};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGCONT;
    for (timer_t &timer : timers)
        if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0) return false;
    std::thread(take_the_processor).detach();
    return true;
}

extern "C" int gelu_float32(const float *x, float *out, int64_t M, int64_t N, void *) {
    static const bool begun = begin();
    if (!begun) return 1;
    for (int64_t i = 0; i < M * N; i++) out[i] = 0.5f * x[i] * (1.0f + std::erf(x[i] * 0.70710678f));
    return 0;
}
