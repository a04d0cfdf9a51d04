// Managed memory: two small blocks lost, one held.
#include "runtime.h"

static void *volatile kept;

static APART void lose_managed(size_t bytes) {
    void *address;
    RT(cudaMallocManaged(&address, bytes));
    memset(address, 1, 4096);
    FORGET(address);
}

static APART void keep_managed(size_t bytes) {
    void *address;
    RT(cudaMallocManaged(&address, bytes));
    kept = address;
    FORGET(address);
}

int main(void) {
    lose_managed(MIB);
    lose_managed(2 * MIB);
    keep_managed(4 * MIB);
    clobber_stack();
    expect_memory(LOST, "managed", 2, 3 * MIB);
    expect_memory(REACHABLE, "managed", 1, 4 * MIB);
    expected("");
    return 0;
}
