/* Every kind of resource, allocated and freed, with what is alive after each step. */
#include "driver.h"

#define MIB (1024 * 1024)
static const char PTX[] = ".version 6.4\n.target sm_52\n.address_size 64\n.visible .entry empty() { ret; }\n";

static void device_memory(void) {
    CUdeviceptr plain, pitched, managed, none;
    size_t pitch = 0;
    DO(cuMemAlloc_v2(&plain, 1000));
    LIVE("device", 1, 1000);
    DO(cuMemAllocPitch_v2(&pitched, &pitch, 100, 30, 4));
    LIVE("device", 2, 1000 + pitch * 30);
    DO(cuMemAllocManaged(&managed, 3000, 1));
    LIVE("managed", 1, 3000);
    /* Refused: nothing changes. */
    REFUSED(1, cuMemFree_v2(plain + 8));
    REFUSED(1, cuMemAlloc_v2(&none, 0));
    LIVE("device", 2, 1000 + pitch * 30);
    DO(cuMemFree_v2(plain));
    LIVE("device", 1, pitch * 30);
    REFUSED(1, cuMemFree_v2(plain));
    LIVE("device", 1, pitch * 30);
    DO(cuMemFree_v2(pitched));
    DO(cuMemFree_v2(managed));
    LIVE("device", 0, 0);
    LIVE("managed", 0, 0);
}

static void host_memory(void) {
    void *a, *b, *c;
    DO(cuMemAllocHost_v2(&a, 4096));
    LIVE("pinned", 1, 4096);
    DO(cuMemHostAlloc(&b, 8192, 0));
    LIVE("pinned", 2, 12288);
    DO(cuMemHostAlloc(&c, 100, 4));
    LIVE("write_combined", 1, 100);
    void *own = aligned_alloc(4096, 8192);
    DO(cuMemHostRegister_v2(own, 8192, 0));
    LIVE("registered", 1, 8192);
    REFUSED(712, cuMemHostRegister_v2(own, 8192, 0));
    LIVE("registered", 1, 8192);
    DO(cuMemHostUnregister(own));
    LIVE("registered", 0, 0);
    free(own);
    DO(cuMemFreeHost(a));
    DO(cuMemFreeHost(b));
    LIVE("pinned", 0, 0);
    DO(cuMemFreeHost(c));
    LIVE("write_combined", 0, 0);
}

static void stream_ordered(void) {
    Handle stream, pool;
    CUdeviceptr a, b, c;
    PoolProps props = {.alloc_type = 1, .location = {1, 0}};
    DO(cuStreamCreate(&stream, 1));
    LIVE("stream", 1, 0);
    DO(cuMemPoolCreate(&pool, &props));
    LIVE("memory_pool", 1, 0);
    DO(cuMemAllocAsync(&a, 5000, stream));
    DO(cuMemAllocFromPoolAsync(&b, 600, pool, stream));
    DO(cuMemAllocAsync(&c, 70, NULL));
    LIVE("stream_ordered", 3, 5670);
    DO(cuMemFreeAsync(a, stream));
    LIVE("stream_ordered", 2, 670);
    /* The pool stays until its memory is freed. */
    DO(cuMemPoolDestroy(pool));
    LIVE("memory_pool", 0, 0);
    LIVE("stream_ordered", 2, 670);
    DO(cuMemFreeAsync(b, stream));
    DO(cuStreamSynchronize(stream));
    /* Not by the stream-ordered function. */
    DO(cuMemFree_v2(c));
    LIVE("stream_ordered", 0, 0);
    DO(cuStreamDestroy_v2(stream));
    LIVE("stream", 0, 0);
}

static void virtual_memory(void) {
    AllocationProp prop = {.type = 1, .location = {1, 0}};
    CUdeviceptr range;
    unsigned long long a, b, again;
    DO(cuMemAddressReserve(&range, 8 * MIB, 0, 0, 0));
    LIVE("address_range", 1, 8 * MIB);
    DO(cuMemCreate(&a, 2 * MIB, &prop, 0));
    DO(cuMemCreate(&b, 4 * MIB, &prop, 0));
    LIVE("physical", 2, 6 * MIB);
    /* Created and not mapped. */
    DO(cuMemRelease(b));
    LIVE("physical", 1, 2 * MIB);
    /* Mapped twice; the handle released: the mappings keep it. */
    DO(cuMemMap(range, 2 * MIB, 0, a, 0));
    DO(cuMemMap(range + 2 * MIB, 2 * MIB, 0, a, 0));
    LIVE("physical", 1, 2 * MIB);
    DO(cuMemRelease(a));
    LIVE("physical", 0, 0);
    LIVE("mapped", 1, 2 * MIB);
    DO(cuMemUnmap(range, 2 * MIB));
    LIVE("mapped", 1, 2 * MIB);
    /* A handle again, from the address. */
    DO(cuMemRetainAllocationHandle(&again, (void *)(uintptr_t)(range + 2 * MIB + 64)));
    LIVE("physical", 1, 2 * MIB);
    LIVE("mapped", 0, 0);
    DO(cuMemUnmap(range + 2 * MIB, 2 * MIB));
    LIVE("physical", 1, 2 * MIB);
    DO(cuMemRelease(again));
    LIVE("physical", 0, 0);
    /* Two handles of one allocation. */
    DO(cuMemCreate(&a, 2 * MIB, &prop, 0));
    DO(cuMemMap(range, 2 * MIB, 0, a, 0));
    DO(cuMemRetainAllocationHandle(&b, (void *)(uintptr_t)range));
    DO(cuMemRelease(a));
    LIVE("physical", 1, 2 * MIB);
    DO(cuMemRelease(b));
    LIVE("mapped", 1, 2 * MIB);
    /* Refused: it is mapped. */
    if (cuMemAddressFree(range, 8 * MIB) == 0) exit(1);
    LIVE("address_range", 1, 8 * MIB);
    DO(cuMemUnmap(range, 2 * MIB));
    LIVE("mapped", 0, 0);
    LIVE("physical", 0, 0);
    DO(cuMemAddressFree(range, 8 * MIB));
    LIVE("address_range", 0, 0);
}

static void arrays(void) {
    Array2D flat = {64, 32, FLOAT_FORMAT, 1};
    Array3D deep = {16, 8, 4, BYTE_FORMAT, 4, 0};
    Handle a, b;
    DO(cuArrayCreate_v2(&a, &flat));
    LIVE("array", 1, 64 * 32 * 4);
    DO(cuArray3DCreate_v2(&b, &deep));
    LIVE("array", 2, 64 * 32 * 4 + 16 * 8 * 4 * 4);
    DO(cuArrayDestroy(a));
    DO(cuArrayDestroy(b));
    LIVE("array", 0, 0);
}

static void handles(void) {
    Handle stream, event, modules[4], libraries[2];
    DO(cuStreamCreateWithPriority(&stream, 1, 0));
    DO(cuEventCreate(&event, 0));
    LIVE("stream", 1, 0);
    LIVE("event", 1, 0);
    const char *file = getenv("PTX_FILE");
    DO(cuModuleLoadData(&modules[0], PTX));
    DO(cuModuleLoadDataEx(&modules[1], PTX, 0, NULL, NULL));
    DO(cuModuleLoad(&modules[2], file));
    LIVE("module", 3, 0);
    DO(cuLibraryLoadData(&libraries[0], PTX, NULL, NULL, 0, NULL, NULL, 0));
    DO(cuLibraryLoadFromFile(&libraries[1], file, NULL, NULL, 0, NULL, NULL, 0));
    LIVE("library", 2, 0);
    for (int i = 0; i < 3; i++) DO(cuModuleUnload(modules[i]));
    for (int i = 0; i < 2; i++) DO(cuLibraryUnload(libraries[i]));
    LIVE("module", 0, 0);
    LIVE("library", 0, 0);
    DO(cuEventDestroy_v2(event));
    DO(cuStreamDestroy_v2(stream));
    LIVE("event", 0, 0);
    LIVE("stream", 0, 0);
}

static void graphs(void) {
    Handle graph, clone, captured, exec, freeing, node, stream, other;
    AllocNodeParams alloc = {.pool = {.alloc_type = 1, .location = {1, 0}}, .bytes = 7000};
    DO(cuStreamCreate(&stream, 1));
    DO(cuGraphCreate(&graph, 0));
    DO(cuGraphClone(&clone, graph));
    LIVE("graph", 2, 0);
    DO(cuGraphDestroy(clone));
    LIVE("graph", 1, 0);
    /* A graph that allocates and does not free. */
    DO(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &alloc));
    DO(cuGraphInstantiateWithFlags(&exec, graph, 0));
    LIVE("graph_exec", 1, 0);
    LIVE("graph_memory", 0, 0);
    DO(cuGraphLaunch(exec, stream));
    LIVE("graph_memory", 1, 7000);
    DO(cuMemFreeAsync(alloc.address, stream));
    LIVE("graph_memory", 0, 0);
    DO(cuGraphLaunch(exec, stream));
    DO(cuStreamSynchronize(stream));
    LIVE("graph_memory", 1, 7000);
    /* A second graph that frees it. */
    DO(cuGraphCreate(&freeing, 0));
    DO(cuGraphAddMemFreeNode(&node, freeing, NULL, 0, alloc.address));
    DO(cuGraphInstantiateWithFlags(&other, freeing, 0));
    DO(cuGraphLaunch(other, stream));
    LIVE("graph_memory", 0, 0);
    DO(cuGraphExecDestroy(other));
    DO(cuGraphDestroy(freeing));
    DO(cuGraphExecDestroy(exec));
    DO(cuGraphDestroy(graph));
    LIVE("graph_exec", 0, 0);
    LIVE("graph", 0, 0);
    /* Captured: nothing is allocated before the launch, and all of it is freed in it. */
    CUdeviceptr memory;
    DO(cuStreamBeginCapture_v2(stream, 0));
    DO(cuMemAllocAsync(&memory, 900, stream));
    DO(cuMemFreeAsync(memory, stream));
    DO(cuStreamEndCapture(stream, &captured));
    LIVE("graph", 1, 0);
    LIVE("stream_ordered", 0, 0);
    DO(cuGraphInstantiateWithFlags(&exec, captured, 0));
    DO(cuGraphLaunch(exec, stream));
    DO(cuStreamSynchronize(stream));
    LIVE("graph_memory", 0, 0);
    DO(cuGraphExecDestroy(exec));
    DO(cuGraphDestroy(captured));
    /* A memory node by the function for nodes of all types. */
    NodeParams any = {.type = 10};
    AllocNodeParams inside = {.pool = {.alloc_type = 1, .location = {1, 0}}, .bytes = 800};
    struct { uint64_t flags; Handle upload, error; int result; } instantiate = {0};
    memcpy(any.reserved1, &inside, sizeof inside);
    DO(cuGraphCreate(&graph, 0));
    DO(cuGraphAddNode_v2(&node, graph, NULL, NULL, 0, &any));
    memcpy(&inside, any.reserved1, sizeof inside);
    DO(cuGraphInstantiateWithParams(&exec, graph, &instantiate));
    LIVE("graph_exec", 1, 0);
    DO(cuGraphLaunch(exec, stream));
    LIVE("graph_memory", 1, 800);
    DO(cuMemFreeAsync(inside.address, stream));
    LIVE("graph_memory", 0, 0);
    DO(cuStreamSynchronize(stream));
    DO(cuGraphExecDestroy(exec));
    DO(cuGraphDestroy(graph));
    /* Captured into a graph that exists. */
    DO(cuGraphCreate(&graph, 0));
    DO(cuStreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, 0));
    DO(cuMemAllocAsync(&memory, 900, stream));
    DO(cuStreamEndCapture(stream, &captured));
    LIVE("graph", 1, 0);
    DO(cuGraphInstantiateWithFlags(&exec, graph, 0));
    DO(cuGraphLaunch(exec, stream));
    LIVE("graph_memory", 1, 900);
    DO(cuStreamSynchronize(stream));
    DO(cuMemFree_v2(memory));
    LIVE("graph_memory", 0, 0);
    DO(cuGraphExecDestroy(exec));
    DO(cuGraphDestroy(graph));
    LIVE("graph", 0, 0);
    DO(cuStreamDestroy_v2(stream));
}

static void contexts(Handle base) {
    Handle first, second, third, primary, attached, stream, event;
    CUdeviceptr memory, ordered;
    void *host;
    DO(cuCtxCreate_v2(&first, 0, 0));
    LIVE("context", 2, 0);
    DO(cuCtxCreate_v3(&second, NULL, 0, 0, 0));
    DO(cuCtxCreate_v4(&third, NULL, 0, 0));
    LIVE("context", 4, 0);
    DO(cuCtxDestroy_v2(first));
    DO(cuCtxDestroy_v2(second));
    LIVE("context", 2, 0);
    /* What is alive in it ends with it, but for stream-ordered memory. */
    DO(cuCtxSetCurrent(third));
    DO(cuMemAlloc_v2(&memory, 1 * MIB));
    DO(cuMemAllocHost_v2(&host, 2 * MIB));
    DO(cuStreamCreate(&stream, 1));
    DO(cuEventCreate(&event, 0));
    DO(cuMemAllocAsync(&ordered, 300, stream));
    LIVE("device", 1, 1 * MIB);
    LIVE("stream_ordered", 1, 300);
    DO(cuCtxDestroy_v2(third));
    LIVE("context", 1, 0);
    LIVE("device", 0, 0);
    LIVE("pinned", 0, 0);
    LIVE("stream", 0, 0);
    LIVE("event", 0, 0);
    LIVE("stream_ordered", 1, 300);
    /* Too late. */
    DO(cuCtxSetCurrent(base));
    REFUSED(1, cuMemFree_v2(memory));
    LIVE("device", 0, 0);
    /* A context that is attached is destroyed by the last detach. */
    DO(cuCtxCreate_v2(&first, 0, 0));
    DO(cuCtxAttach(&attached, 0));
    LIVE("context", 2, 0);
    DO(cuCtxDetach(first));
    LIVE("context", 2, 0);
    DO(cuCtxDetach(first));
    LIVE("context", 1, 0);
    /* Primary: retained twice, one record; reset ends what is in it; the last release ends it. */
    DO(cuDevicePrimaryCtxRetain(&primary, 0));
    DO(cuDevicePrimaryCtxRetain(&primary, 0));
    LIVE("context", 2, 0);
    DO(cuCtxSetCurrent(primary));
    DO(cuMemAlloc_v2(&memory, 64));
    LIVE("device", 1, 64);
    DO(cuDevicePrimaryCtxRelease_v2(0));
    LIVE("context", 2, 0);
    LIVE("device", 1, 64);
    DO(cuDevicePrimaryCtxReset_v2(0));
    LIVE("device", 0, 0);
    DO(cuDevicePrimaryCtxRelease_v2(0));
    LIVE("context", 1, 0);
    DO(cuDevicePrimaryCtxRetain(&primary, 0));
    DO(cuCtxSetCurrent(primary));
    DO(cuMemAlloc_v2(&memory, 32));
    LIVE("device", 1, 32);
    DO(cuDevicePrimaryCtxRelease_v2(0));
    LIVE("context", 1, 0);
    LIVE("device", 0, 0);
    REFUSED(201, cuDevicePrimaryCtxRelease_v2(0));
    LIVE("context", 1, 0);
}

int main(void) {
    Handle context;
    load_driver();
    DO(cuInit(0));
    DO(cuCtxCreate_v2(&context, 0, 0));
    LIVE("context", 1, 0);
    device_memory();
    host_memory();
    stream_ordered();
    virtual_memory();
    arrays();
    handles();
    graphs();
    contexts(context);
    DO(cuCtxSetCurrent(context));
    printf("%d checks passed\n", checks);
    return 0;
}
