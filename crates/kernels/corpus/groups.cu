// Kernels with cooperative groups and instructions of warps.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;

extern "C" __global__ void tile_sums(const int *from, int *to) {
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    int own = from[threadIdx.x];
    for (int by = tile.size() / 2; by > 0; by /= 2) own += tile.shfl_down(own, by);
    to[threadIdx.x] = tile.shfl(own, 0);
}

extern "C" __global__ void reduce_and_scan(const int *from, int *sums, int *scans) {
    auto tile = cg::tiled_partition<32>(cg::this_thread_block());
    sums[threadIdx.x] = cg::reduce(tile, from[threadIdx.x], cg::plus<int>());
    scans[threadIdx.x] = cg::inclusive_scan(tile, from[threadIdx.x], cg::plus<int>());
}

// One atomic operation per group of threads that are here.
extern "C" __global__ void filter(const int *from, int *to, int *count, int total) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= total || from[i] % 3 != 0) return;
    auto here = cg::coalesced_threads();
    int start = 0;
    if (here.thread_rank() == 0) start = atomicAdd(count, here.size());
    to[here.shfl(start, 0) + here.thread_rank()] = from[i];
}

extern "C" __global__ void labelled(const int *from, unsigned *to) {
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    auto same = cg::labeled_partition(warp, from[threadIdx.x] % 4);
    to[threadIdx.x] = same.size() * 100 + same.thread_rank();
}

extern "C" __global__ void grid_barrier(int *values, int count, int rounds) {
    cg::grid_group grid = cg::this_grid();
    int i = grid.thread_rank();
    for (int round = 0; round < rounds; round++) {
        int next = values[(i + 1) % count];
        grid.sync();
        values[i] = next + 1;
        grid.sync();
    }
}

extern "C" __global__ void ballots(const int *from, unsigned *to) {
    int own = from[threadIdx.x];
    unsigned odd = __ballot_sync(~0u, own & 1);
    unsigned peers = __match_any_sync(~0u, own % 5);
    int all, any = __any_sync(~0u, own > 90);
    __match_all_sync(~0u, own >= 0, &all);
    to[threadIdx.x] = __popc(odd) + 100 * __popc(peers) + 10000 * any + 20000 * all + 100000 * __reduce_max_sync(~0u, (unsigned)own % 8);
}
