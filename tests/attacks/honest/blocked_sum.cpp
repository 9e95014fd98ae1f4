// specimen: class=other_order task=sum device=cpu verdict=passed categories=tiny,small,medium
// Eight partial sums a row, as a vector unit adds.
#include <cstdint>
extern "C" int sum(const float *x, float *out, int64_t M, int64_t N, void *) {
    for (int64_t i = 0; i < M; i++) {
        float part[8] = {0};
        for (int64_t j = 0; j < N; j++) part[j % 8] += x[i * N + j];
        out[i] = ((part[0] + part[4]) + (part[1] + part[5])) + ((part[2] + part[6]) + (part[3] + part[7]));
    }
    return 0;
}
