// For programs that use the CUDA runtime.
#ifndef RUNTIME_H
#define RUNTIME_H

#include <cuda_runtime.h>

#include "expect.h"

#define RT(call) MUST(call, cudaSuccess)

// Allocates device memory and forgets its address.
static APART void lose_block(size_t bytes) {
    void *address;
    RT(cudaMalloc(&address, bytes));
    FORGET(address);
}

#endif
