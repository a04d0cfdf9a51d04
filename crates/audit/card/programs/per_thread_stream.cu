// Built with --default-stream per-thread: the runtime calls the driver's _ptsz functions.
#include "runtime.h"

static void *volatile kept;

static APART void lose_one_keep_one(void) {
    void *address;
    RT(cudaMallocAsync(&address, MIB, 0));
    RT(cudaMallocAsync(&address, 2 * MIB, 0));
    kept = address;
    RT(cudaMallocAsync(&address, 4 * MIB, 0));
    RT(cudaFreeAsync(address, 0));
    RT(cudaStreamSynchronize(0));
    FORGET(address);
}

int main(void) {
    lose_one_keep_one();
    clobber_stack();
    expect_memory(LOST, "stream_ordered", 1, MIB);
    expect_memory(REACHABLE, "stream_ordered", 1, 2 * MIB);
    expected("");
    return 0;
}
