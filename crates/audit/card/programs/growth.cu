// A list that grows with each round of work: reachable, and growing.
#include "runtime.h"

static void *volatile blocks[200];

static APART void remember(int index) {
    void *address;
    RT(cudaMalloc(&address, MIB));
    blocks[index] = address;
    FORGET(address);
}

static APART void work(void) {
    void *address;
    RT(cudaMalloc(&address, MIB));
    RT(cudaMemset(address, 0, MIB));
    RT(cudaFree(address));
}

int main(void) {
    for (int index = 0; index < 200; index++) {
        remember(index);
        work();
    }
    clobber_stack();
    expect_memory(REACHABLE, "device", 200, 200 * MIB);
    expected("\"grows\": \"remember\"");
    return 0;
}
