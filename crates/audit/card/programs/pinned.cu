// Page-locked memory: allocated, and registered. The registered range is mapped directly, so no heap knows its address.
#include <sys/mman.h>

#include "runtime.h"

static APART void lose_pinned(void) {
    void *address;
    RT(cudaMallocHost(&address, MIB));
    RT(cudaMallocHost(&address, 2 * MIB));
    FORGET(address);
}

static APART void lose_registered(size_t bytes) {
    void *address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED)
        exit(99);
    RT(cudaHostRegister(address, bytes, cudaHostRegisterDefault));
    FORGET(address);
}

int main(void) {
    lose_pinned();
    lose_registered(4 * MIB);
    clobber_stack();
    expect_memory(LOST, "pinned", 2, 3 * MIB);
    expect_memory(LOST, "registered", 1, 4 * MIB);
    expected("");
    return 0;
}
