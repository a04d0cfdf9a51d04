// Sixteen threads, each with a stream of its own, allocate and free in stream order: `threads COUNT`. Prints the time of
// a pair as a thread sees it, the median of five rounds.
#include <barrier>
#include <thread>

#include "bench.h"

static const int THREADS = 16, ROUNDS = 5;

int main(int words, char **arguments) {
    if (words != 2)
        return 99;
    int count = atoi(arguments[1]);
    keep_pool();
    std::barrier<> meeting(THREADS + 1);
    std::vector<std::thread> threads;
    for (int index = 0; index < THREADS; index++)
        threads.emplace_back([&] {
            cudaStream_t stream;
            RT(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
            for (int round = 0; round < ROUNDS + 1; round++) {
                meeting.arrive_and_wait();
                for (int pair = 0; pair < count; pair++) {
                    void *address;
                    RT(cudaMallocAsync(&address, 1 << 20, stream));
                    RT(cudaFreeAsync(address, stream));
                }
                RT(cudaStreamSynchronize(stream));
                meeting.arrive_and_wait();
            }
            RT(cudaStreamDestroy(stream));
        });
    std::vector<double> rounds;
    for (int round = 0; round < ROUNDS + 1; round++) {
        meeting.arrive_and_wait();
        double began = now();
        meeting.arrive_and_wait();
        // The first round fills the pool.
        if (round > 0)
            rounds.push_back((now() - began) / count * 1e9);
    }
    for (std::thread &thread : threads)
        thread.join();
    printf("{\"value\": %.1f}\n", median(rounds));
}
