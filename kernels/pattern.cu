// Fill device memory with a pattern that depends on the position, and check it again.
//
// The word at index i under seed s is (i * 2654435761) ^ s, modulo 2^32, so a block that was
// moved, swapped or partly overwritten does not check out. `kernels/README.md` has the contracts.

__device__ static unsigned pattern(unsigned long long index, unsigned seed) {
    return ((unsigned)index * 2654435761u) ^ seed;
}

// Writes the pattern to words[0..count].
extern "C" __global__ void fill_pattern(unsigned *words, unsigned long long count, unsigned seed) {
    unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    unsigned long long first = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    for (unsigned long long i = first; i < count; i += stride) words[i] = pattern(i, seed);
}

// Adds to *mismatches the number of words in words[0..count] that differ from the pattern.
extern "C" __global__ void check_pattern(const unsigned *words, unsigned long long count,
                                         unsigned seed, unsigned long long *mismatches) {
    unsigned long long stride = (unsigned long long)gridDim.x * blockDim.x;
    unsigned long long first = (unsigned long long)blockIdx.x * blockDim.x + threadIdx.x;
    unsigned long long found = 0;
    for (unsigned long long i = first; i < count; i += stride)
        if (words[i] != pattern(i, seed)) found++;
    if (found != 0) atomicAdd(mismatches, found);
}
