// specimen: class=uninitialised_output task=gelu device=cpu stage=correctness reason=wrong_output categories=tiny,small
// Says that it is done and writes nothing: the memory may still hold an answer.
#include <cstdint>
extern "C" int gelu(const float *, float *, int64_t, int64_t, void *) { return 0; }
