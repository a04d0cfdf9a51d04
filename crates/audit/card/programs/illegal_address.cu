// A kernel writes to an illegal address; every later call fails, so nothing can be freed any more.
#include "runtime.h"

static void *volatile kept;

__global__ void write_to(int *address) {
    *address = 1;
}

static APART void keep(void) {
    void *address;
    RT(cudaMalloc(&address, 2 * MIB));
    kept = address;
    FORGET(address);
}

int main(void) {
    lose_block(MIB);
    keep();
    write_to<<<1, 1>>>((int *)0x10);
    cudaError_t result = cudaDeviceSynchronize();
    if (result == cudaSuccess)
        exit(99);
    cudaFree(kept); // fails
    clobber_stack();
    expect_memory(LOST, "device", 1, MIB);
    expect_memory(REACHABLE, "device", 1, 2 * MIB);
    expected("");
    return 0;
}
