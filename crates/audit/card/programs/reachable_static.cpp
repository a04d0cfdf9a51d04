// A cache in a C++ object whose destructor runs at exit and does not free device memory, as in PyTorch's allocator:
// reachable when the process began to exit, so not lost.
#include <vector>

#include "runtime.h"

struct Cache {
    std::vector<void *> blocks;
    ~Cache() { blocks.clear(); }
};
static Cache cache;

static APART void fill() {
    for (int index = 0; index < 5; index++) {
        void *address;
        RT(cudaMalloc(&address, MIB));
        cache.blocks.push_back(address);
        FORGET(address);
    }
}

int main() {
    fill();
    clobber_stack();
    expect_memory(REACHABLE, "device", 5, 5 * MIB);
    expected("");
    return 0;
}
