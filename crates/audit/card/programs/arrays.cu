// Arrays: two and three dimensions, and a mipmapped array. The bytes are those of the elements, without padding.
#include "runtime.h"

static APART void lose_arrays(void) {
    cudaChannelFormatDesc format = cudaCreateChannelDesc<float>();
    cudaArray_t array;
    cudaMipmappedArray_t mipmapped;
    RT(cudaMallocArray(&array, &format, 256, 256));
    RT(cudaMalloc3DArray(&array, &format, make_cudaExtent(64, 64, 16)));
    RT(cudaMallocArray(&array, &format, 1024, 1024));
    RT(cudaFreeArray(array));
    RT(cudaMallocMipmappedArray(&mipmapped, &format, make_cudaExtent(256, 256, 0), 3));
    FORGET(array);
    FORGET(mipmapped);
}

int main(void) {
    lose_arrays();
    clobber_stack();
    long flat = 256 * 256 * 4, deep = 64 * 64 * 16 * 4, levels = flat + flat / 4 + flat / 16;
    expect_memory(LOST, "array", 3, flat + deep + levels);
    expected("");
    return 0;
}
