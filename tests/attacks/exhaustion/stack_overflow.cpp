// specimen: class=crash task=gelu device=cpu stage=call reason=crash
// Recurses until the stack ends.
#include <cstdint>
__attribute__((noinline)) static int64_t deep(volatile int64_t *p) {
    volatile int64_t here[512] = {*p + 1};
    return deep(here) + here[7];
}
extern "C" int gelu(const float *, float *, int64_t, int64_t, void *) {
    volatile int64_t zero = 0;
    return deep(&zero) == 3;
}
