/* Threads that allocate and free, also what another thread allocated, and one that creates and destroys contexts. */
#define WAY 1
#include "driver.h"
#include <pthread.h>

enum { THREADS = 8, ROUNDS = 300, KEPT = 5 };
static Handle context;
static CUdeviceptr passed[THREADS][ROUNDS];

/* Other threads get the handles and addresses that this one releases. */
static void map_and_launch(Handle stream) {
    AllocationProp prop = {.type = 1, .location = {1, 0}};
    AllocNodeParams alloc = {.pool = {.alloc_type = 1, .location = {1, 0}}, .bytes = 700};
    size_t page = 2 * 1024 * 1024;
    CUdeviceptr range;
    unsigned long long physical;
    Handle graph, exec, node;
    DO(cuMemAddressReserve(&range, 2 * page, 0, 0, 0));
    DO(cuMemCreate(&physical, page, &prop, 0));
    DO(cuMemMap(range, page, 0, physical, 0));
    DO(cuMemMap(range + page, page, 0, physical, 0));
    DO(cuMemRelease(physical));
    DO(cuMemUnmap(range, 2 * page));
    DO(cuMemAddressFree(range, 2 * page));
    DO(cuGraphCreate(&graph, 0));
    DO(cuGraphAddMemAllocNode(&node, graph, NULL, 0, &alloc));
    DO(cuGraphInstantiateWithFlags(&exec, graph, 0));
    DO(cuGraphLaunch(exec, stream));
    DO(cuMemFreeAsync(alloc.address, stream));
    DO(cuStreamSynchronize(stream));
    DO(cuGraphExecDestroy(exec));
    DO(cuGraphDestroy(graph));
}

static void *work(void *argument) {
    int own = (int)(intptr_t)argument;
    Handle stream, event;
    DO(cuCtxSetCurrent(context));
    DO(cuStreamCreate(&stream, 1));
    for (int i = 0; i < ROUNDS; i++) {
        CUdeviceptr plain, ordered;
        DO(cuMemAllocAsync(&ordered, 256 + i, stream));
        DO(cuMemAlloc_v2(&plain, 64));
        DO(cuEventCreate(&event, 0));
        DO(cuMemFreeAsync(ordered, stream));
        DO(cuMemFree_v2(plain));
        DO(cuEventDestroy_v2(event));
        DO(cuMemAlloc_v2(&plain, 32));
        __atomic_store_n(&passed[own][i], plain, __ATOMIC_RELEASE);
        CUdeviceptr theirs = __atomic_exchange_n(&passed[(own + 1) % THREADS][i], 0, __ATOMIC_ACQ_REL);
        if (theirs) DO(cuMemFree_v2(theirs));
        if (i % 10 == 0) map_and_launch(stream);
    }
    for (int i = 0; i < KEPT; i++) {
        CUdeviceptr kept;
        DO(cuMemAlloc_v2(&kept, 1024));
    }
    DO(cuStreamSynchronize(stream));
    DO(cuStreamDestroy_v2(stream));
    return NULL;
}

static void *create_contexts(void *unused) {
    (void)unused;
    for (int i = 0; i < 50; i++) {
        Handle own;
        CUdeviceptr memory;
        DO(cuCtxCreate_v2(&own, 0, 0));
        DO(cuMemAlloc_v2(&memory, 4096));
        DO(cuCtxDestroy_v2(own));
    }
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS + 1];
    DO(cuInit(0));
    DO(cuCtxCreate_v2(&context, 0, 0));
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, work, (void *)(intptr_t)i);
    pthread_create(&threads[THREADS], NULL, create_contexts, NULL);
    for (int i = 0; i <= THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        for (int j = 0; j < ROUNDS; j++)
            if (passed[i][j]) DO(cuMemFree_v2(passed[i][j]));
    LIVE("device", THREADS * KEPT, THREADS * KEPT * 1024);
    LIVE("stream_ordered", 0, 0);
    LIVE("event", 0, 0);
    LIVE("stream", 0, 0);
    LIVE("context", 1, 0);
    LIVE("physical", 0, 0);
    LIVE("mapped", 0, 0);
    LIVE("address_range", 0, 0);
    LIVE("graph", 0, 0);
    LIVE("graph_exec", 0, 0);
    LIVE("graph_memory", 0, 0);
    printf("%d checks passed\n", checks);
    return 0;
}
