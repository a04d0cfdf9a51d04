// A cache in a global table, with one address inside its block: nothing is lost.
#include "runtime.h"

static struct {
    long key;
    void *address;
} volatile cache[4];

static APART void fill(void) {
    for (int index = 0; index < 4; index++) {
        void *address;
        RT(cudaMalloc(&address, MIB));
        cache[index].key = index;
        // The last entry holds an interior address.
        cache[index].address = index == 3 ? (char *)address + 4096 : address;
        FORGET(address);
    }
}

int main(void) {
    fill();
    clobber_stack();
    expect_memory(REACHABLE, "device", 4, 4 * MIB);
    expected("\"mentions\": [\"cache\"]");
    return 0;
}
