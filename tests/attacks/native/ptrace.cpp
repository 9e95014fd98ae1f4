// specimen: class=ptrace task=gelu device=cpu stage=correctness reason=wrong_output
// Attaches to every process that it can name and reads its memory; writes out how many it got, which is none.
#include <cstdint>
#include <cstdlib>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>
extern "C" int gelu(const float *, float *out, int64_t M, int64_t N, void *) {
    static int got = -1;
    if (got < 0) {
        got = 0;
        char buffer[64];
        for (pid_t pid = 1; pid < 4096; pid++) {
            if (pid == getpid()) continue;
            if (ptrace(PTRACE_ATTACH, pid, 0, 0) == 0) got++;
            iovec mine{buffer, 64}, theirs{(void *)0x400000, 64};
            if (process_vm_readv(pid, &mine, 1, &theirs, 1, 0) > 0) got++;
        }
    }
    for (int64_t i = 0; i < M * N; i++) out[i] = (float)got;
    return 0;
}
