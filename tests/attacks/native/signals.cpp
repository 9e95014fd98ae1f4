// specimen: class=signal_trap task=gelu device=cpu stage=correctness reason=wrong_output
// Traps every signal, so that nothing could end it, and computes nothing.
#include <csignal>
#include <cstdint>
static void nothing(int) {}
extern "C" int gelu(const float *, float *out, int64_t M, int64_t N, void *) {
    for (int s = 1; s < 32; s++)
        if (s != SIGKILL && s != SIGSTOP) std::signal(s, nothing);
    for (int64_t i = 0; i < M * N; i++) out[i] = 0.0f;
    return 0;
}
