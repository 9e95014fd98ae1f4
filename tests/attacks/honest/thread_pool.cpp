// specimen: class=thread_pool task=silu device=cpu verdict=passed distributions=standard allow=custom categories=tiny,small
// A pool that lives from the first call on; every call waits until its work is done.
#include <atomic>
#include <cmath>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>
class Pool {
public:
    Pool() {
        for (int i = 0; i < 2; i++) std::thread([this, i] { work(i); }).detach();
    }
    void run(std::function<void(int)> job) {
        std::unique_lock<std::mutex> lock(mutex);
        task = std::move(job);
        left = 2;
        round++;
        wake.notify_all();
        done.wait(lock, [this] { return left == 0; });
    }

private:
    void work(int i) {
        uint64_t seen = 0;
        for (;;) {
            std::unique_lock<std::mutex> lock(mutex);
            wake.wait(lock, [&] { return round != seen; });
            seen = round;
            auto mine = task;
            lock.unlock();
            mine(i);
            lock.lock();
            if (--left == 0) done.notify_one();
        }
    }
    std::mutex mutex;
    std::condition_variable wake, done;
    std::function<void(int)> task;
    int left = 0;
    uint64_t round = 0;
};
extern "C" int silu(const float *x, float *out, int64_t M, int64_t N, void *) {
    static Pool *pool = new Pool;
    const int64_t n = M * N;
    pool->run([=](int part) {
        for (int64_t i = n * part / 2; i < n * (part + 1) / 2; i++) out[i] = x[i] / (1.0f + std::exp(-x[i]));
    });
    return 0;
}
