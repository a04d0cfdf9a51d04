// Stream-ordered memory: one block of the default pool and two of a pool that is never destroyed are lost, one block is freed.
#include "runtime.h"

static APART void lose_from_pools(void) {
    cudaMemPoolProps properties;
    memset(&properties, 0, sizeof properties);
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = 0;
    cudaMemPool_t pool;
    void *address;
    RT(cudaMemPoolCreate(&pool, &properties));
    RT(cudaMallocAsync(&address, MIB, 0));
    RT(cudaMallocFromPoolAsync(&address, 2 * MIB, pool, 0));
    RT(cudaMallocFromPoolAsync(&address, 3 * MIB, pool, 0));
    RT(cudaMallocFromPoolAsync(&address, 5 * MIB, pool, 0));
    RT(cudaFreeAsync(address, 0));
    RT(cudaStreamSynchronize(0));
    FORGET(address);
    FORGET(pool);
}

int main(void) {
    lose_from_pools();
    clobber_stack();
    expect_memory(LOST, "stream_ordered", 3, 6 * MIB);
    expect_kind("memory_pool", 1, 0);
    expected("");
    return 0;
}
