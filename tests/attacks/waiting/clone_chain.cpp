// specimen: class=outruns_the_stop task=gelu device=cpu stage=call reason=tampering allow=custom directions=forward categories=tiny,small
// Chains of processes that share memory: each link starts the next one and ends. Once it sees the worker stopped it does
// so at once, and what stops a process by its id comes too late.
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static const int CHAINS = 6, STACKS = 256, SIZE = 16384;
static char *stacks[CHAINS];
static std::atomic<unsigned> links[CHAINS];
static char path[64];

static void nap(long ns) {
    const timespec time{0, ns};
    syscall(SYS_nanosleep, &time, nullptr);
}

static bool stopped() {
    char text[128];
    const int fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY, 0);
    const long n = fd < 0 ? 0 : syscall(SYS_read, fd, text, sizeof text);
    syscall(SYS_close, fd);
    for (long i = n - 2; i > 0; i--)
        if (text[i - 1] == ')') return text[i + 1] == 'T';
    return false;
}

static int link_of(void *chain) {
    const intptr_t c = (intptr_t)chain;
    if (!stopped()) nap(500000);
    while (clone(link_of, stacks[c] + SIZE * (1 + links[c]++ % STACKS), CLONE_VM | SIGCHLD, chain) < 0) nap(50000);
    syscall(SYS_exit, 0);
    return 0;
}

static bool begin() {
    snprintf(path, sizeof path, "/proc/%d/stat", (int)getpid());
    for (intptr_t c = 0; c < CHAINS; c++) {
        stacks[c] = (char *)mmap(nullptr, SIZE * (STACKS + 1), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (clone(link_of, stacks[c] + SIZE, CLONE_VM | SIGCHLD, (void *)c) < 0) return false;
    }
    return true;
}

extern "C" int gelu_float32(const float *x, float *out, int64_t M, int64_t N, void *) {
    static const bool begun = begin();
    if (!begun) return 1;
    for (int64_t i = 0; i < M * N; i++) out[i] = 0.5f * x[i] * (1.0f + std::erf(x[i] * 0.70710678f));
    return 0;
}
