// Pitched memory: the driver chooses the pitch, and the size is the pitch times the rows.
#include "runtime.h"

static APART long lose_pitched(void) {
    void *address;
    size_t pitch;
    RT(cudaMallocPitch(&address, &pitch, 1000, 300));
    cudaPitchedPtr block;
    RT(cudaMalloc3D(&block, make_cudaExtent(500, 20, 10)));
    long bytes = (long)pitch * 300 + (long)block.pitch * 20 * 10;
    FORGET(address);
    FORGET(block);
    return bytes;
}

int main(void) {
    long bytes = lose_pitched();
    clobber_stack();
    expect_memory(LOST, "device", 2, bytes);
    expected("");
    return 0;
}
