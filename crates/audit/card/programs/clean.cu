// Everything is freed: nothing to report, and the exit code stays what it is.
#include "runtime.h"

int main(void) {
    void *device, *managed, *pinned, *ordered;
    cudaStream_t stream;
    RT(cudaStreamCreate(&stream));
    RT(cudaMalloc(&device, MIB));
    RT(cudaMallocManaged(&managed, MIB));
    RT(cudaMallocHost(&pinned, MIB));
    RT(cudaMallocAsync(&ordered, MIB, stream));
    RT(cudaFreeAsync(ordered, stream));
    RT(cudaStreamSynchronize(stream));
    RT(cudaFree(device));
    RT(cudaFree(managed));
    RT(cudaFreeHost(pinned));
    RT(cudaStreamDestroy(stream));
    expect_kind("stream", 0, 0);
    expected("\"reports\": 1");
    return 7;
}
