// Chains of multiply-adds that do not depend on one another, as many as hide the latency of one, in every thread:
// what the vector units of a processor can do at best. Nothing is read from memory meanwhile.

#include <thread>
#include <vector>

#if defined(__AVX512F__)
constexpr int kBytes = 64;
#elif defined(__AVX__)
constexpr int kBytes = 32;
#else
constexpr int kBytes = 16;
#endif

// 5 cycles of latency times 2 units are 10; 12 chains, a factor and an addend fit into 16 registers.
constexpr int kChains = 12;

template <typename T>
static void chains(long rounds, T factor, T addend, double* sum) {
    typedef T Vector __attribute__((vector_size(kBytes)));
    constexpr int lanes = kBytes / int(sizeof(T));
    Vector value[kChains];
    Vector by, plus;
    for (int lane = 0; lane < lanes; ++lane) {
        by[lane] = factor;
        plus[lane] = addend;
        for (int chain = 0; chain < kChains; ++chain) value[chain][lane] = T(chain);
    }
    for (long round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
        for (int chain = 0; chain < kChains; ++chain) value[chain] = value[chain] * by + plus;
    }
    double total = 0;
    for (int chain = 0; chain < kChains; ++chain)
        for (int lane = 0; lane < lanes; ++lane) total += double(value[chain][lane]);
    *sum = total;
}

// The sum of all numbers after so many rounds, and how many numbers there are.
template <typename T>
static void all(long rounds, int threads, double factor, double addend, double* sum, long* numbers) {
    std::vector<double> sums(static_cast<size_t>(threads) * 8);  // a cache line each
    std::vector<std::thread> others;
    for (int i = 1; i < threads; ++i) others.emplace_back(chains<T>, rounds, T(factor), T(addend), &sums[i * 8]);
    chains<T>(rounds, T(factor), T(addend), &sums[0]);
    for (auto& thread : others) thread.join();
    *sum = 0;
    for (int i = 0; i < threads; ++i) *sum += sums[i * 8];
    *numbers = long(threads) * kChains * (kBytes / long(sizeof(T)));
}

extern "C" {

void chains_float64(long rounds, int threads, double factor, double addend, double* sum, long* numbers) {
    all<double>(rounds, threads, factor, addend, sum, numbers);
}

void chains_float32(long rounds, int threads, double factor, double addend, double* sum, long* numbers) {
    all<float>(rounds, threads, factor, addend, sum, numbers);
}

#if defined(__AVX512FP16__) || defined(__ARM_FEATURE_FP16_VECTOR_ARITHMETIC)
void chains_float16(long rounds, int threads, double factor, double addend, double* sum, long* numbers) {
    all<_Float16>(rounds, threads, factor, addend, sum, numbers);
}
#endif
}
