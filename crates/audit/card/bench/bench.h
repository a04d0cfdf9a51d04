// What the cost programs share: a clock that the script that started them reads too, and errors that end the program.
#ifndef BENCH_H
#define BENCH_H

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <vector>

#define RT(call)                                                              \
    do {                                                                      \
        cudaError_t result_ = (call);                                         \
        if (result_ != cudaSuccess) {                                         \
            fprintf(stderr, "%s returned %d\n", #call, (int)result_);         \
            exit(99);                                                         \
        }                                                                     \
    } while (0)

// CLOCK_MONOTONIC, as Python's time.monotonic().
static inline double now() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static inline double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

// The default pool keeps what is freed, so that a pair is no call of the operating system.
static inline void keep_pool() {
    cudaMemPool_t pool;
    unsigned long long all = ~0ull;
    RT(cudaDeviceGetDefaultMemPool(&pool, 0));
    RT(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all));
}

#endif
