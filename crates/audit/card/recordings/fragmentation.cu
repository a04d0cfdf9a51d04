// Fills the GPU with blocks of 1 MiB, frees every other one and asks for a block of half of what was freed: refused.
// Exit code 0: it was refused.
#include <cstdio>
#include <vector>

#include <cuda_runtime.h>

static std::vector<void *> fill(size_t bytes) {
    std::vector<void *> blocks;
    for (void *block; cudaMalloc(&block, bytes) == cudaSuccess;)
        blocks.push_back(block);
    cudaGetLastError();
    return blocks;
}

static void free_every_other(std::vector<void *> &blocks) {
    for (size_t index = 0; index < blocks.size(); index += 2) {
        cudaFree(blocks[index]);
        blocks[index] = nullptr;
    }
}

static void *large_block(size_t bytes) {
    void *block = nullptr;
    cudaMalloc(&block, bytes);
    return block;
}

int main() {
    std::vector<void *> blocks = fill(1 << 20);
    free_every_other(blocks);
    size_t freed = blocks.size() / 2;
    void *large = large_block(freed / 2 << 20);
    printf("%zu blocks of 1 MiB, %zu MiB of them freed: a block of %zu MiB is %s\n", blocks.size(), freed, freed / 2, large ? "had" : "refused");
    for (void *block : blocks)
        cudaFree(block);
    cudaFree(large);
    return large ? 1 : 0;
}
