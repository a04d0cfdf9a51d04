// Managed memory: two small blocks lost. None is held: what is not found would not be called lost then, because it may be in
// the held one.
#include "runtime.h"

static APART void lose_managed(size_t bytes) {
    void *address;
    RT(cudaMallocManaged(&address, bytes));
    memset(address, 1, 4096);
    FORGET(address);
}

int main(void) {
    lose_managed(MIB);
    lose_managed(2 * MIB);
    clobber_stack();
    expect_memory(LOST, "managed", 2, 3 * MIB);
    expected("");
    return 0;
}
