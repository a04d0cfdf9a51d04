// A C++ object whose destructor frees at exit: no leak, neither lost nor reachable. It is created after the first call
// of the runtime, so it is destroyed before the runtime shuts down.
#include <vector>

#include "runtime.h"

struct Owner {
    std::vector<void *> blocks;
    ~Owner() {
        for (void *block : blocks)
            RT(cudaFree(block));
    }
};

static APART void fill() {
    static Owner owner;
    for (int index = 0; index < 2; index++) {
        void *address;
        RT(cudaMalloc(&address, MIB));
        owner.blocks.push_back(address);
        FORGET(address);
    }
}

int main() {
    RT(cudaFree(NULL));
    fill();
    clobber_stack();
    expected("\"reports\": 1");
    return 0;
}
