// specimen: class=crash task=gelu device=cpu stage=load reason=exit
// Ends the process with success as soon as its library is loaded.
#include <cstdint>
#include <unistd.h>
__attribute__((constructor)) static void begin() { _exit(0); }
extern "C" int gelu(const float *, float *, int64_t, int64_t, void *) { return 0; }
