// Allocation from the device heap (`malloc` inside a kernel). The heap's size is the context's
// limit CU_LIMIT_MALLOC_HEAP_SIZE; a request that does not fit gets a null pointer, silently.

// Each thread asks for `bytes` and, if `keep` is 0, gives them back. *granted counts the requests
// that got memory, *refused those that did not. With `keep` the memory stays allocated: a leak
// that no host-side allocator sees.
extern "C" __global__ void heap_allocate(unsigned long long bytes, unsigned keep,
                                         unsigned long long *granted,
                                         unsigned long long *refused) {
    unsigned char *block = (unsigned char *)malloc(bytes);
    if (block == 0) {
        atomicAdd(refused, 1ull);
        return;
    }
    block[0] = 1;
    block[bytes - 1] = 1;
    atomicAdd(granted, 1ull);
    if (!keep) free(block);
}
