// Cooperative groups, the heap and printf. Compiled by nvcc.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cstdio>
namespace cg = cooperative_groups;
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)
#define KERNEL extern "C" __global__ void

KERNEL grid_sum(const unsigned *from, unsigned *partial, unsigned *to) {
    cg::grid_group grid = cg::this_grid();
    auto tile = cg::tiled_partition<32>(cg::this_thread_block());
    unsigned sum = cg::reduce(tile, from[grid.thread_rank()], cg::plus<unsigned>());
    if (tile.thread_rank() == 0) partial[grid.thread_rank() / 32] = sum;
    grid.sync();
    if (grid.thread_rank() == 0) {
        unsigned all = 0;
        for (unsigned i = 0; i < grid.size() / 32; i++) all += partial[i];
        *to = all;
    }
}

KERNEL grid_rounds(unsigned *a, unsigned *b, unsigned rounds) {
    cg::grid_group grid = cg::this_grid();
    unsigned i = grid.thread_rank(), n = grid.size();
    for (unsigned round = 0; round < rounds; round++) {
        unsigned *from = round % 2 ? b : a, *to = round % 2 ? a : b;
        to[i] = from[(i + 1) % n] * 3 + from[(i + n - 1) % n] + round;
        grid.sync();
    }
}

KERNEL tiles(const int *from, int *to) {
    auto block = cg::this_thread_block();
    auto four = cg::tiled_partition<4>(block);
    auto sixteen = cg::tiled_partition<16>(block);
    int least = cg::reduce(four, from[INDEX], cg::less<int>()), most = cg::reduce(sixteen, from[INDEX], cg::greater<int>());
    to[INDEX] = least * 1000 + most + four.meta_group_rank() * 1000000 + sixteen.any(from[INDEX] == 50) + (four.match_any(from[INDEX] % 3) << 24);
}

KERNEL coalesced(const int *from, int *to) {
    to[INDEX] = -1;
    if (from[INDEX] % 3) {
        auto here = cg::coalesced_threads();
        to[INDEX] = here.size() * 100 + here.thread_rank() + 10000 * here.shfl(from[INDEX], 0);
    }
}

KERNEL lists_on_the_heap(unsigned *to, unsigned count) {
    struct Node {
        Node *next;
        unsigned value;
    };
    Node *list = nullptr;
    for (unsigned i = 0; i < count; i++) list = new Node{list, i * INDEX};
    unsigned sum = 0;
    while (list) {
        Node *next = list->next;
        sum = sum * 31 + list->value;
        delete list;
        list = next;
    }
    to[INDEX] = sum;
}

KERNEL shared_allocation(unsigned *to) {
    __shared__ unsigned *memory;
    if (!threadIdx.x) memory = (unsigned *)malloc(blockDim.x * sizeof(unsigned));
    __syncthreads();
    memory[threadIdx.x] = threadIdx.x * 3;
    __syncthreads();
    to[INDEX] = memory[blockDim.x - 1 - threadIdx.x];
    __syncthreads();
    if (!threadIdx.x) free(memory);
}

KERNEL print_numbers(unsigned *to) {
    printf("thread %u: %5.2f %s %c|%lld|%-4d|%#x|%e|%%\n", threadIdx.x, threadIdx.x * 1.5, threadIdx.x % 2 ? "odd" : "even", 'a' + threadIdx.x,
           -1234567890123ll * threadIdx.x, (int)threadIdx.x - 3, 255 + threadIdx.x, 0.001 * threadIdx.x);
    to[threadIdx.x] = 1;
}

__device__ __noinline__ unsigned fibonacci(unsigned n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }

KERNEL recursion_of_lanes(unsigned *to) { to[threadIdx.x] = fibonacci(threadIdx.x % 12); }

__device__ __noinline__ void hanoi(unsigned n, unsigned from, unsigned over, unsigned to, unsigned &moves, unsigned &sum) {
    if (!n) return;
    hanoi(n - 1, from, to, over, moves, sum);
    moves++, sum = sum * 5 + from * 3 + to;
    hanoi(n - 1, over, from, to, moves, sum);
}

KERNEL towers(unsigned *to) {
    unsigned moves = 0, sum = 0;
    hanoi(threadIdx.x % 6, 0, 1, 2, moves, sum);
    to[2 * threadIdx.x] = moves, to[2 * threadIdx.x + 1] = sum;
}

__device__ __noinline__ int plus_one(int a) { return a + 1; }
__device__ __noinline__ int doubled(int a) { return a * 2; }
__device__ __noinline__ int inverted(int a) { return ~a; }
__device__ __noinline__ int squared(int a) { return a * a; }
typedef int (*Step)(int);
__device__ const Step steps[4] = {plus_one, doubled, inverted, squared};

KERNEL chains_of_pointers(const unsigned *which, int *to) {
    int own = threadIdx.x;
    for (unsigned bits = which[INDEX], i = 0; i < 8; i++, bits >>= 2) own = steps[bits % 4](own);
    to[INDEX] = own;
}

template <typename F> __device__ __noinline__ int apply(F f, int a) { return f(f(a)); }

KERNEL closures(const int *from, int *to) {
    int by = from[0];
    to[INDEX] = apply([=](int a) { return a * by + (int)INDEX; }, from[INDEX]);
}
