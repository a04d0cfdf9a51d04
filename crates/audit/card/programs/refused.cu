// The driver refuses an allocation: a diagnosis on stderr, once for the call site, and the error passed on unchanged.
#include "runtime.h"

int main(void) {
    void *address = NULL;
    for (int round = 0; round < 3; round++) {
        cudaError_t result = cudaMalloc(&address, 1L << 43);
        if (result != cudaErrorMemoryAllocation) {
            fprintf(stderr, "cudaMalloc returned %d\n", (int)result);
            exit(99);
        }
        cudaGetLastError();
    }
    expected("\"diagnoses\": 1, \"reports\": 1");
    return 0;
}
