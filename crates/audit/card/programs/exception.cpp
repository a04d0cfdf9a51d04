// An exception leaves a function between the allocation and the free.
#include <stdexcept>

#include "runtime.h"

static APART void check(int round) {
    if (round % 2 == 1)
        throw std::runtime_error("odd");
}

static APART void transform(int round) {
    void *address;
    RT(cudaMalloc(&address, MIB));
    // The copy on the stack is overwritten while the exception leaves, as a deeper call would do it.
    struct Forget {
        void *&address;
        ~Forget() { FORGET(address); }
    };
    {
        Forget forget{address};
        check(round);
        RT(cudaFree(address));
    }
}

int main() {
    for (int round = 0; round < 4; round++) {
        try {
            transform(round);
        } catch (const std::runtime_error &) {
        }
    }
    clobber_stack();
    expect_memory(LOST, "device", 2, 2 * MIB);
    expected("\"mentions\": [\"transform\"]");
    return 0;
}
