/* One leak of every kind, for the report. */
#include "driver.h"

#define MIB (1024 * 1024)
static const char PTX[] = ".version 6.4\n.target sm_52\n.address_size 64\n.visible .entry empty() { ret; }\n";

int main(void) {
    Handle context, other, handle, graph, stream;
    CUdeviceptr memory;
    unsigned long long physical;
    void *host;
    AllocationProp prop = {.type = 1, .location = {1, 0}};
    PoolProps pool = {.alloc_type = 1, .location = {1, 0}};
    AllocNodeParams node = {.pool = {.alloc_type = 1, .location = {1, 0}}, .bytes = 7000};
    Array2D flat = {64, 32, FLOAT_FORMAT, 1};
    load_driver();
    DO(cuInit(0));
    DO(cuCtxCreate_v2(&context, 0, 0));
    for (int i = 0; i < 3; i++) DO(cuMemAlloc_v2(&memory, 1000));
    DO(cuMemAllocManaged(&memory, 2000, 1));
    DO(cuMemAllocHost_v2(&host, 3000));
    DO(cuMemHostAlloc(&host, 4000, 4));
    DO(cuMemHostRegister_v2(aligned_alloc(4096, 8192), 8192, 0));
    DO(cuStreamCreate(&stream, 1));
    DO(cuMemAllocAsync(&memory, 5000, stream));
    DO(cuMemPoolCreate(&handle, &pool));
    DO(cuMemAllocFromPoolAsync(&memory, 600, handle, stream));
    DO(cuMemAddressReserve(&memory, 8 * MIB, 0, 0, 0));
    DO(cuMemCreate(&physical, 2 * MIB, &prop, 0));
    DO(cuMemCreate(&physical, 2 * MIB, &prop, 0));
    DO(cuMemMap(memory, 2 * MIB, 0, physical, 0));
    DO(cuMemRelease(physical));
    DO(cuArrayCreate_v2(&handle, &flat));
    DO(cuEventCreate(&handle, 0));
    DO(cuModuleLoadData(&handle, PTX));
    DO(cuLibraryLoadData(&handle, PTX, NULL, NULL, 0, NULL, NULL, 0));
    DO(cuGraphCreate(&graph, 0));
    DO(cuGraphAddMemAllocNode(&handle, graph, NULL, 0, &node));
    DO(cuGraphInstantiateWithFlags(&handle, graph, 0));
    DO(cuGraphLaunch(handle, stream));
    /* Destroyed with its context. */
    DO(cuCtxCreate_v2(&other, 0, 0));
    DO(cuMemAlloc_v2(&memory, 123));
    DO(cuCtxDestroy_v2(other));
    return 0;
}
