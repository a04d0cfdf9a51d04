// `many_live COUNT`: that many live allocations at exit, half of them lost. Prints when it begins to exit.
#include "bench.h"

static void **volatile kept;

int main(int words, char **arguments) {
    if (words != 2)
        return 99;
    long count = atol(arguments[1]);
    keep_pool();
    void **addresses = (void **)calloc(count, sizeof *addresses);
    cudaStream_t stream;
    RT(cudaStreamCreate(&stream));
    double began = now();
    for (long index = 0; index < count; index++)
        RT(cudaMallocAsync(&addresses[index], 512, stream));
    RT(cudaStreamSynchronize(stream));
    double allocated = now();
    for (long index = 0; index < count; index += 2)
        addresses[index] = NULL;
    kept = addresses;
    printf("{\"value\": %.1f, \"ends\": %.6f}\n", (allocated - began) / (double)count * 1e9, now());
}
