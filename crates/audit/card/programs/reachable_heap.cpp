// A cache in the heap that a global pointer keeps, and a holder that was freed with its addresses in it.
#include <map>

#include "runtime.h"

static std::map<int, void *> *volatile cache;

static APART void fill() {
    auto *entries = new std::map<int, void *>;
    for (int index = 0; index < 3; index++) {
        void *address;
        RT(cudaMalloc(&address, MIB));
        (*entries)[index] = address;
        FORGET(address);
    }
    cache = entries;
}

static APART void free_holder() {
    void **holder = (void **)malloc(4 * KIB);
    // Not in the first words, which the allocator overwrites.
    RT(cudaMalloc(&holder[100], 2 * MIB));
    RT(cudaMalloc(&holder[200], 2 * MIB));
    free(holder);
    FORGET(holder);
}

int main() {
    fill();
    free_holder();
    clobber_stack();
    expect_memory(REACHABLE, "device", 3, 3 * MIB);
    expect_memory(LOST, "device", 2, 4 * MIB);
    expected("");
    return 0;
}
