/* The variants for per-thread default streams: linked, and from cuGetProcAddress_v2 with the flag. */
#define WAY 2
#include "driver.h"

#define VARIANTS(F) \
    F(cuMemAllocAsync_ptsz, "cuMemAllocAsync", 11020, (CUdeviceptr *, size_t, Handle)) \
    F(cuMemAllocFromPoolAsync_ptsz, "cuMemAllocFromPoolAsync", 11020, (CUdeviceptr *, size_t, Handle, Handle)) \
    F(cuMemFreeAsync_ptsz, "cuMemFreeAsync", 11020, (CUdeviceptr, Handle)) \
    F(cuStreamBeginCapture_v2_ptsz, "cuStreamBeginCapture", 10010, (Handle, int)) \
    F(cuStreamEndCapture_ptsz, "cuStreamEndCapture", 10000, (Handle, Handle *)) \
    F(cuStreamSynchronize_ptsz, "cuStreamSynchronize", 7000, (Handle)) \
    F(cuGraphInstantiateWithParams_ptsz, "cuGraphInstantiateWithParams", 12000, (Handle *, Handle, void *)) \
    F(cuGraphLaunch_ptsz, "cuGraphLaunch", 10000, (Handle, Handle))

typedef CUresult GetProcAddressV2(const char *, void **, int, uint64_t, int *);
#define POINTER(name, base, version, parameters) static CUresult(*name) parameters;
VARIANTS(POINTER)

static void check(void) {
    Handle pool, graph, exec;
    CUdeviceptr a, b, captured;
    PoolProps props = {.alloc_type = 1, .location = {1, 0}};
    struct { uint64_t flags; Handle upload, error; int result; } params = {0};
    DO(cuMemPoolCreate(&pool, &props));
    DO(cuMemAllocAsync_ptsz(&a, 100, NULL));
    DO(cuMemAllocFromPoolAsync_ptsz(&b, 20, pool, NULL));
    LIVE("stream_ordered", 2, 120);
    DO(cuMemFreeAsync_ptsz(a, NULL));
    LIVE("stream_ordered", 1, 20);
    DO(cuMemFreeAsync_ptsz(b, NULL));
    LIVE("stream_ordered", 0, 0);
    DO(cuMemPoolDestroy(pool));
    /* CU_STREAM_PER_THREAD, which null means here. */
    DO(cuStreamBeginCapture_v2_ptsz(NULL, 0));
    DO(cuMemAllocAsync_ptsz(&captured, 30, NULL));
    DO(cuStreamEndCapture_ptsz(NULL, &graph));
    LIVE("stream_ordered", 0, 0);
    LIVE("graph", 1, 0);
    DO(cuGraphInstantiateWithParams_ptsz(&exec, graph, &params));
    LIVE("graph_exec", 1, 0);
    DO(cuGraphLaunch_ptsz(exec, NULL));
    LIVE("graph_memory", 1, 30);
    DO(cuMemFreeAsync_ptsz(captured, NULL));
    LIVE("graph_memory", 0, 0);
    DO(cuStreamSynchronize_ptsz(NULL));
    DO(cuGraphExecDestroy(exec));
    DO(cuGraphDestroy(graph));
    LIVE("graph", 0, 0);
    LIVE("graph_exec", 0, 0);
}

int main(void) {
    Handle context;
    load_driver();
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    DO(cuInit(0));
    DO(cuCtxCreate_v2(&context, 0, 0));
#define BY_NAME(name, base, version, parameters) \
    if (!(name = (CUresult(*) parameters)dlsym(driver, #name))) fail(#name);
    VARIANTS(BY_NAME)
    check();
    GetProcAddressV2 *get = (GetProcAddressV2 *)dlsym(driver, "cuGetProcAddress_v2");
#define FROM_DRIVER(name, base, version, parameters) \
    name = NULL; \
    if (get(base, (void **)&name, version, 2, NULL) || !name) fail(#name);
    VARIANTS(FROM_DRIVER)
    check();
    printf("%d checks passed\n", checks);
    return 0;
}
