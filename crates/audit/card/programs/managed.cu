// Managed memory: a held block has the address of another one and of device memory, which are reachable by it. Two further
// blocks are lost, with the device memory that one of them has the address of.
#include "runtime.h"

static void **held;

static APART void hold_managed(void) {
    RT(cudaMallocManaged((void **)&held, 4 * MIB));
    RT(cudaMallocManaged(held + 1000, MIB));
    void **second = (void **)held[1000];
    RT(cudaMalloc(second, 64 * KIB));
    // The device uses the pages, so that both addresses are there when they are searched for.
    RT(cudaMemset(held + 1001, 1, 64));
    RT(cudaMemset(second + 1, 1, 64));
    RT(cudaDeviceSynchronize());
}

static APART void lose_managed(size_t bytes) {
    void *address;
    RT(cudaMallocManaged(&address, bytes));
    memset(address, 1, 4096);
    FORGET(address);
}

static APART void lose_holder(void) {
    void **holder;
    RT(cudaMallocManaged((void **)&holder, 2 * MIB));
    RT(cudaMalloc(holder + 3, 32 * KIB));
    FORGET(holder);
}

int main(void) {
    hold_managed();
    lose_managed(MIB);
    lose_holder();
    clobber_stack();
    expect_memory(REACHABLE, "managed", 2, 5 * MIB);
    expect_memory(REACHABLE, "device", 1, 64 * KIB);
    expect_memory(LOST, "managed", 2, 3 * MIB);
    expect_memory(LOST, "device", 1, 32 * KIB);
    expected("");
    return 0;
}
