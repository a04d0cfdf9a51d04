// Kernels for launches of all kinds: plain, with 64 KiB of dynamic shared memory, cooperative.

// Does nothing: for the cost of a launch.
extern "C" __global__ void nothing() {}

// output = factor input, for any grid and block.
extern "C" __global__ void scale(const float *input, float *output, unsigned count, float factor) {
    size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride)
        output[i] = factor * input[i];
}

// Reverses each tile of 16384 words, in 64 KiB of dynamic shared memory. For any grid and block.
extern "C" __global__ void reverse_tiles(unsigned *words, unsigned tiles) {
    extern __shared__ unsigned tile[];
    const unsigned length = 16384;
    for (unsigned block = blockIdx.x; block < tiles; block += gridDim.x) {
        unsigned *at = words + (size_t)block * length;
        for (unsigned i = threadIdx.x; i < length; i += blockDim.x)
            tile[length - 1 - i] = at[i];
        __syncthreads();
        for (unsigned i = threadIdx.x; i < length; i += blockDim.x)
            at[i] = tile[i];
        __syncthreads();
    }
}

// Adds up all words in each block: the blocks exchange partial sums, which takes a barrier for the whole grid, so all of
// them must run at the same time (a cooperative launch). `partial` and `sums` have an element for each block; `partial` and
// `arrived` start as 0.
extern "C" __global__ void sum_everywhere(const unsigned *words, unsigned count, unsigned *partial, unsigned *arrived,
                                          unsigned *sums) {
    unsigned sum = 0;
    size_t stride = (size_t)gridDim.x * blockDim.x;
    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride)
        sum += words[i];
    atomicAdd(&partial[blockIdx.x], sum);
    // What this thread has added is visible to all before its block arrives.
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        atomicAdd(arrived, 1);
        while (*(volatile unsigned *)arrived < gridDim.x) {
        }
        // What other blocks added before they arrived is visible from here on.
        __threadfence();
        unsigned total = 0;
        for (unsigned block = 0; block < gridDim.x; block++)
            total += ((volatile unsigned *)partial)[block];
        sums[blockIdx.x] = total;
    }
}
