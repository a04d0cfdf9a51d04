/* What the simulated driver does not have, on a driver that only counts. */
#define _GNU_SOURCE
#define FUNCTIONS(F) \
    F(cuInit, (unsigned)) \
    F(cuCtxCreate_v2, (Handle *, unsigned, int)) \
    F(cuGLCtxCreate_v2, (Handle *, unsigned, int)) \
    F(cuCtxDestroy_v2, (Handle)) \
    F(cuCtxSetCurrent, (Handle)) \
    F(cuMemAlloc_v2, (CUdeviceptr *, size_t)) \
    F(cuMemAlloc, (unsigned *, unsigned)) \
    F(cuMemAllocPitch, (unsigned *, unsigned *, unsigned, unsigned, unsigned)) \
    F(cuMemAllocHost, (void **, unsigned)) \
    F(cuMemFree_v2, (CUdeviceptr)) \
    F(cuMemFree, (unsigned)) \
    F(cuMemFreeHost, (void *)) \
    F(cuMemFreeAsync, (CUdeviceptr, Handle)) \
    F(cuIpcOpenMemHandle_v2, (CUdeviceptr *, Ipc, unsigned)) \
    F(cuIpcCloseMemHandle, (CUdeviceptr)) \
    F(cuIpcOpenEventHandle, (Handle *, Ipc)) \
    F(cuEventDestroy_v2, (Handle)) \
    F(cuImportExternalMemory, (Handle *, const void *)) \
    F(cuDestroyExternalMemory, (Handle)) \
    F(cuExternalMemoryGetMappedBuffer, (CUdeviceptr *, Handle, const void *)) \
    F(cuExternalMemoryGetMappedMipmappedArray, (Handle *, Handle, const void *)) \
    F(cuMipmappedArrayCreate, (Handle *, const Array3D *, unsigned)) \
    F(cuMipmappedArrayDestroy, (Handle)) \
    F(cuArrayCreate, (Handle *, const unsigned *)) \
    F(cuArray3DCreate, (Handle *, const unsigned *)) \
    F(cuArrayDestroy, (Handle)) \
    F(cuMemImportFromShareableHandle, (unsigned long long *, void *, int)) \
    F(cuMulticastCreate, (unsigned long long *, const void *)) \
    F(cuMemRelease, (unsigned long long)) \
    F(cuMemPoolImportFromShareableHandle, (Handle *, void *, int, unsigned long long)) \
    F(cuMemPoolDestroy, (Handle)) \
    F(cuMemPoolImportPointer, (CUdeviceptr *, Handle, void *)) \
    F(cuGreenCtxCreate, (Handle *, Handle, int, unsigned)) \
    F(cuGreenCtxDestroy, (Handle)) \
    F(cuCtxFromGreenCtx, (Handle *, Handle)) \
    F(cuGreenCtxStreamCreate, (Handle *, Handle, unsigned, int)) \
    F(cuStreamDestroy_v2, (Handle)) \
    F(cuGraphCreate, (Handle *, unsigned)) \
    F(cuGraphAddNode_v2, (Handle *, Handle, const Handle *, const void *, size_t, NodeParams *)) \
    F(cuGraphDestroy, (Handle)) \
    F(cuCtxSynchronize, (void)) \
    F(cuShinyMemAlloc, (long, long, long, long, long, long, long, long, double, double)) \
    F(cuShinyQuery, (int))
#include "driver.h"
#include <pthread.h>
#include <unistd.h>

typedef struct { char bytes[64]; } Ipc;
#define POINTER(name, parameters) static CUresult(*name) parameters;
FUNCTIONS(POINTER)

static void old_functions(void) {
    unsigned narrow, pitched, pitch;
    void *host;
    Handle array;
    unsigned flat[4] = {64, 32, FLOAT_FORMAT, 1}, deep[6] = {16, 8, 4, BYTE_FORMAT, 2, 0};
    /* The driver calls another of its functions in it, which is not recorded again. */
    DO(cuMemAlloc(&narrow, 100));
    LIVE("device", 1, 100);
    DO(cuMemFree(narrow));
    LIVE("device", 0, 0);
    DO(cuMemAllocPitch(&pitched, &pitch, 100, 10, 4));
    LIVE("device", 1, 5120);
    DO(cuMemFree(pitched));
    DO(cuMemAllocHost(&host, 300));
    LIVE("pinned", 1, 300);
    DO(cuMemFreeHost(host));
    LIVE("pinned", 0, 0);
    DO(cuArrayCreate(&array, flat));
    LIVE("array", 1, 8192);
    DO(cuArrayDestroy(array));
    DO(cuArray3DCreate(&array, deep));
    LIVE("array", 1, 1024);
    DO(cuArrayDestroy(array));
    LIVE("array", 0, 0);
}

/* What the next call that frees returns. */
static int *result;

static void refused_frees(Handle context) {
    Ipc first = {{1}};
    CUdeviceptr memory, opened;
    unsigned long long physical;
    DO(cuMemAlloc_v2(&memory, 100));
    DO(cuIpcOpenMemHandle_v2(&opened, first, 1));
    DO(cuMemImportFromShareableHandle(&physical, NULL, 1));
    *result = 1;
    REFUSED(1, cuMemFree_v2(memory));
    *result = 1;
    REFUSED(1, cuIpcCloseMemHandle(opened));
    *result = 1;
    REFUSED(1, cuMemRelease(physical));
    *result = 700;
    REFUSED(700, cuCtxDestroy_v2(context));
    LIVE("device", 1, 100);
    LIVE("imported", 1, 4096);
    LIVE("physical", 1, 0);
    LIVE("context", 1, 0);
    DO(cuMemRelease(physical));
    DO(cuIpcCloseMemHandle(opened));
    LIVE("physical", 0, 0);
    LIVE("imported", 0, 0);
    /* The driver is shutting down, and frees everything itself. */
    *result = 4;
    REFUSED(4, cuMemFree_v2(memory));
    LIVE("device", 0, 0);
}

static void mipmapped_arrays(void) {
    /* 64 x 32 floats, then 32 x 16, 16 x 8. */
    Array3D plain = {64, 32, 0, FLOAT_FORMAT, 1, 0};
    /* 3 layers at all levels. */
    Array3D layered = {64, 32, 3, FLOAT_FORMAT, 1, 1};
    /* Memory is mapped later. */
    Array3D sparse = {64, 32, 0, FLOAT_FORMAT, 1, 0x40};
    Handle a, b, c;
    uint64_t bytes = 4 * (64 * 32 + 32 * 16 + 16 * 8);
    DO(cuMipmappedArrayCreate(&a, &plain, 3));
    LIVE("array", 1, bytes);
    DO(cuMipmappedArrayCreate(&b, &layered, 3));
    LIVE("array", 2, 4 * bytes);
    DO(cuMipmappedArrayCreate(&c, &sparse, 1));
    LIVE("array", 3, 4 * bytes);
    DO(cuMipmappedArrayDestroy(a));
    DO(cuMipmappedArrayDestroy(b));
    DO(cuMipmappedArrayDestroy(c));
    LIVE("array", 0, 0);
}

static void imported(void) {
    Ipc first = {{1}}, second = {{2}};
    CUdeviceptr a, b, again, buffer;
    Handle event, memory, array, pool;
    unsigned long long physical, multicast;
    DO(cuIpcOpenMemHandle_v2(&a, first, 1));
    DO(cuIpcOpenMemHandle_v2(&b, second, 1));
    LIVE("imported", 2, 8192);
    /* Opened twice, closed twice. */
    DO(cuIpcOpenMemHandle_v2(&again, first, 1));
    LIVE("imported", 2, 8192);
    DO(cuIpcCloseMemHandle(a));
    LIVE("imported", 2, 8192);
    DO(cuIpcCloseMemHandle(a));
    LIVE("imported", 1, 4096);
    DO(cuIpcCloseMemHandle(b));
    LIVE("imported", 0, 0);
    DO(cuIpcOpenEventHandle(&event, first));
    LIVE("event", 1, 0);
    DO(cuEventDestroy_v2(event));
    LIVE("event", 0, 0);
    uint64_t descriptor[13] = {1, 0, 0, 70000};
    DO(cuImportExternalMemory(&memory, descriptor));
    LIVE("imported", 1, 70000);
    DO(cuExternalMemoryGetMappedBuffer(&buffer, memory, descriptor));
    LIVE("imported", 2, 70000);
    DO(cuExternalMemoryGetMappedMipmappedArray(&array, memory, descriptor));
    LIVE("array", 1, 0);
    DO(cuMipmappedArrayDestroy(array));
    DO(cuMemFree_v2(buffer));
    DO(cuDestroyExternalMemory(memory));
    LIVE("imported", 0, 0);
    LIVE("array", 0, 0);
    DO(cuMemImportFromShareableHandle(&physical, NULL, 1));
    DO(cuMulticastCreate(&multicast, descriptor));
    LIVE("physical", 2, 0);
    DO(cuMemRelease(physical));
    DO(cuMemRelease(multicast));
    LIVE("physical", 0, 0);
    DO(cuMemPoolImportFromShareableHandle(&pool, NULL, 1, 0));
    LIVE("memory_pool", 1, 0);
    DO(cuMemPoolImportPointer(&a, pool, descriptor));
    LIVE("imported", 1, 4096);
    DO(cuMemFreeAsync(a, NULL));
    LIVE("imported", 0, 0);
    DO(cuMemPoolDestroy(pool));
    LIVE("memory_pool", 0, 0);
}

static void contexts(void) {
    Handle graphics, green, from_green, stream, base;
    CUdeviceptr memory;
    Ipc first = {{1}};
    DO(cuGLCtxCreate_v2(&graphics, 0, 0));
    LIVE("context", 2, 0);
    DO(cuIpcOpenMemHandle_v2(&memory, first, 1));
    DO(cuIpcOpenMemHandle_v2(&memory, first, 1));
    LIVE("imported", 1, 4096);
    DO(cuCtxDestroy_v2(graphics));
    LIVE("context", 1, 0);
    LIVE("imported", 0, 0);
    DO(cuCtxCreate_v2(&base, 0, 0));
    DO(cuIpcOpenMemHandle_v2(&memory, first, 1));
    LIVE("imported", 1, 4096);
    DO(cuIpcCloseMemHandle(memory));
    LIVE("imported", 0, 0);
    DO(cuGreenCtxCreate(&green, NULL, 0, 1));
    LIVE("context", 3, 0);
    DO(cuGreenCtxStreamCreate(&stream, green, 1, 0));
    DO(cuGreenCtxStreamCreate(&stream, green, 1, 0));
    LIVE("stream", 2, 0);
    DO(cuStreamDestroy_v2(stream));
    LIVE("stream", 1, 0);
    DO(cuCtxFromGreenCtx(&from_green, green));
    DO(cuCtxSetCurrent(from_green));
    DO(cuMemAlloc_v2(&memory, 50));
    LIVE("device", 1, 50);
    LIVE("context", 3, 0);
    DO(cuGreenCtxDestroy(green));
    LIVE("context", 2, 0);
    LIVE("device", 0, 0);
    LIVE("stream", 0, 0);
    DO(cuCtxDestroy_v2(base));
    LIVE("context", 1, 0);
}

static void graphs(void) {
    Handle parent, child, node;
    NodeParams params = {.type = 4};
    DO(cuGraphCreate(&parent, 0));
    DO(cuGraphCreate(&child, 0));
    memcpy(params.reserved1, &child, sizeof child);
    /* Cloned. */
    DO(cuGraphAddNode_v2(&node, parent, NULL, NULL, 0, &params));
    LIVE("graph", 2, 0);
    /* Moved: destroyed with its parent. */
    params.reserved1[1] = 1;
    DO(cuGraphAddNode_v2(&node, parent, NULL, NULL, 0, &params));
    LIVE("graph", 1, 0);
    DO(cuGraphDestroy(parent));
    LIVE("graph", 0, 0);
}

static void *wait_for_device(void *unused) {
    (void)unused;
    cuCtxSynchronize();
    return NULL;
}

/* A thread that is cancelled in a call of the driver. */
static void cancelled(void) {
    pthread_t thread;
    void *result = NULL;
    CUdeviceptr memory;
    if (pthread_create(&thread, NULL, wait_for_device, NULL)) exit(6);
    usleep(20000);
    pthread_cancel(thread);
    if (pthread_join(thread, &result) || result != PTHREAD_CANCELED) exit(7);
    DO(cuMemAlloc_v2(&memory, 10));
    LIVE("device", 1, 10);
    DO(cuMemFree_v2(memory));
}

int main(void) {
    Handle context;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
#define LOAD(name, parameters) \
    if (!(name = (CUresult(*) parameters)dlsym(driver, #name))) return 2;
    FUNCTIONS(LOAD)
    if (!(result = dlsym(driver, "pretend_result"))) return 2;
    DO(cuInit(0));
    DO(cuCtxCreate_v2(&context, 0, 0));
    old_functions();
    refused_frees(context);
    mipmapped_arrays();
    imported();
    contexts();
    graphs();
    cancelled();
    /* Functions that are not recorded get all their arguments. */
    REFUSED(385, cuShinyMemAlloc(1, 2, 3, 4, 5, 6, 7, 8, 9.0, 10.0));
    int (*get)(const char *, void **, int, unsigned long long, int *) =
        (int (*)(const char *, void **, int, unsigned long long, int *))dlsym(driver, "cuGetProcAddress_v2");
    cuShinyMemAlloc = NULL;
    DO(get("cuShinyMemAlloc", (void **)&cuShinyMemAlloc, 13000, 0, NULL));
    REFUSED(385, cuShinyMemAlloc(1, 2, 3, 4, 5, 6, 7, 8, 9.0, 10.0));
    REFUSED(3, cuShinyQuery(3));
    CUdeviceptr memory;
    DO(cuMemAlloc_v2(&memory, 100));
    DO(get("cuMemFree", (void **)&cuMemFree_v2, 12000, 0, NULL));
    DO(cuMemFree_v2(memory));
    LIVE("device", 0, 0);
    /* A version of a recorded function that is newer than the audit library. */
    CUresult (*newer)(long, long, long, long, long, long, long, long) = NULL;
    DO(get("cuCtxCreate", (void **)&newer, 14000, 0, NULL));
    REFUSED(204, newer(1, 2, 3, 4, 5, 6, 7, 8));
    DO(get("cuStreamBeginCapture", (void **)&newer, 14000, 2, NULL));
    REFUSED(205, newer(1, 2, 3, 4, 5, 6, 7, 8));
    LIVE("context", 1, 0);
    /* The known version, by an address that is not exported. */
    DO(get("cuMemAlloc", (void **)&cuMemAlloc_v2, 14000, 0, NULL));
    DO(cuMemAlloc_v2(&memory, 100));
    LIVE("device", 1, 100);
    DO(cuMemFree_v2(memory));
    printf("%d checks passed\n", checks);
    return 0;
}
