// The CUDA runtime, built twice: with the static and with the shared libcudart. A kernel makes the runtime load a module.
#include "runtime.h"

static void *volatile kept;

__global__ void fill(int *values) {
    values[threadIdx.x] = threadIdx.x;
}

static APART void use_one_keep_one(void) {
    void *address;
    RT(cudaMalloc(&address, MIB));
    fill<<<1, 32>>>((int *)address);
    RT(cudaDeviceSynchronize());
    RT(cudaFree(address));
    RT(cudaMalloc(&address, 2 * MIB));
    kept = address;
    FORGET(address);
}

int main(void) {
    lose_block(MIB);
    lose_block(512 * KIB);
    use_one_keep_one();
    clobber_stack();
    expect_memory(LOST, "device", 2, 1536 * KIB);
    expect_memory(REACHABLE, "device", 1, 2 * MIB);
    expected("");
    return 0;
}
