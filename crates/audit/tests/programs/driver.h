/* The part of the driver's interface that the test programs use, found on the way that WAY names:
 *   1 direct linking             2 dlopen and dlsym of the handle
 *   3 dlsym(RTLD_DEFAULT)        4 dlsym(RTLD_NEXT)
 *   5 cuGetProcAddress           6 cuGetProcAddress_v2, itself asked for by cuGetProcAddress_v2
 * Without WAY, a program declares what it needs.
 * Without a CUDA header, so that the programs compile everywhere. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef void *Handle;
typedef struct { size_t width, height; unsigned format, channels; } Array2D;
typedef struct { size_t width, height, depth; unsigned format, channels, flags; } Array3D;
typedef struct { int type, id; } Location;
typedef struct { int type, handle_types; Location location; void *security; unsigned char flags[8]; } AllocationProp;
typedef struct { int alloc_type, handle_types; Location location; void *security; size_t max_size; unsigned short usage; unsigned char reserved[54]; } PoolProps;
typedef struct { Location location; int flags; } AccessDesc;
typedef struct { PoolProps pool; const AccessDesc *access; size_t access_count, bytes; CUdeviceptr address; } AllocNodeParams;
typedef struct { int type; int reserved0[3]; long long reserved1[29]; long long reserved2; } NodeParams;

enum { FLOAT_FORMAT = 0x20, BYTE_FORMAT = 1 };

#ifdef WAY
/* F(exported name, name for cuGetProcAddress, CUDA version, parameters) */
#define FUNCTIONS(F) \
    F(cuInit, "cuInit", 2000, (unsigned)) \
    F(cuCtxCreate_v2, "cuCtxCreate", 3020, (Handle *, unsigned, CUdevice)) \
    F(cuCtxCreate_v3, "cuCtxCreate", 11040, (Handle *, void *, int, unsigned, CUdevice)) \
    F(cuCtxCreate_v4, "cuCtxCreate", 12050, (Handle *, void *, unsigned, CUdevice)) \
    F(cuCtxDestroy_v2, "cuCtxDestroy", 4000, (Handle)) \
    F(cuCtxSetCurrent, "cuCtxSetCurrent", 4000, (Handle)) \
    F(cuCtxAttach, "cuCtxAttach", 2000, (Handle *, unsigned)) \
    F(cuCtxDetach, "cuCtxDetach", 2000, (Handle)) \
    F(cuCtxSynchronize, "cuCtxSynchronize", 2000, (void)) \
    F(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000, (Handle *, CUdevice)) \
    F(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", 11000, (CUdevice)) \
    F(cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", 11000, (CUdevice)) \
    F(cuMemAlloc_v2, "cuMemAlloc", 3020, (CUdeviceptr *, size_t)) \
    F(cuMemAllocPitch_v2, "cuMemAllocPitch", 3020, (CUdeviceptr *, size_t *, size_t, size_t, unsigned)) \
    F(cuMemAllocManaged, "cuMemAllocManaged", 6000, (CUdeviceptr *, size_t, unsigned)) \
    F(cuMemFree_v2, "cuMemFree", 3020, (CUdeviceptr)) \
    F(cuMemAllocHost_v2, "cuMemAllocHost", 3020, (void **, size_t)) \
    F(cuMemHostAlloc, "cuMemHostAlloc", 2020, (void **, size_t, unsigned)) \
    F(cuMemFreeHost, "cuMemFreeHost", 2000, (void *)) \
    F(cuMemHostRegister_v2, "cuMemHostRegister", 6050, (void *, size_t, unsigned)) \
    F(cuMemHostUnregister, "cuMemHostUnregister", 4000, (void *)) \
    F(cuMemAllocAsync, "cuMemAllocAsync", 11020, (CUdeviceptr *, size_t, Handle)) \
    F(cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", 11020, (CUdeviceptr *, size_t, Handle, Handle)) \
    F(cuMemFreeAsync, "cuMemFreeAsync", 11020, (CUdeviceptr, Handle)) \
    F(cuMemPoolCreate, "cuMemPoolCreate", 11020, (Handle *, const PoolProps *)) \
    F(cuMemPoolDestroy, "cuMemPoolDestroy", 11020, (Handle)) \
    F(cuMemAddressReserve, "cuMemAddressReserve", 10020, (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long)) \
    F(cuMemAddressFree, "cuMemAddressFree", 10020, (CUdeviceptr, size_t)) \
    F(cuMemCreate, "cuMemCreate", 10020, (unsigned long long *, size_t, const AllocationProp *, unsigned long long)) \
    F(cuMemRelease, "cuMemRelease", 10020, (unsigned long long)) \
    F(cuMemMap, "cuMemMap", 10020, (CUdeviceptr, size_t, size_t, unsigned long long, unsigned long long)) \
    F(cuMemUnmap, "cuMemUnmap", 10020, (CUdeviceptr, size_t)) \
    F(cuMemRetainAllocationHandle, "cuMemRetainAllocationHandle", 11000, (unsigned long long *, void *)) \
    F(cuArrayCreate_v2, "cuArrayCreate", 3020, (Handle *, const Array2D *)) \
    F(cuArray3DCreate_v2, "cuArray3DCreate", 3020, (Handle *, const Array3D *)) \
    F(cuArrayDestroy, "cuArrayDestroy", 2000, (Handle)) \
    F(cuStreamCreate, "cuStreamCreate", 2000, (Handle *, unsigned)) \
    F(cuStreamCreateWithPriority, "cuStreamCreateWithPriority", 5050, (Handle *, unsigned, int)) \
    F(cuStreamDestroy_v2, "cuStreamDestroy", 4000, (Handle)) \
    F(cuStreamSynchronize, "cuStreamSynchronize", 2000, (Handle)) \
    F(cuStreamBeginCapture_v2, "cuStreamBeginCapture", 10010, (Handle, int)) \
    F(cuStreamEndCapture, "cuStreamEndCapture", 10000, (Handle, Handle *)) \
    F(cuStreamBeginCaptureToGraph, "cuStreamBeginCaptureToGraph", 12030, (Handle, Handle, const Handle *, const void *, size_t, int)) \
    F(cuEventCreate, "cuEventCreate", 2000, (Handle *, unsigned)) \
    F(cuEventDestroy_v2, "cuEventDestroy", 4000, (Handle)) \
    F(cuModuleLoadData, "cuModuleLoadData", 2000, (Handle *, const void *)) \
    F(cuModuleLoadDataEx, "cuModuleLoadDataEx", 2010, (Handle *, const void *, unsigned, void *, void **)) \
    F(cuModuleLoadFatBinary, "cuModuleLoadFatBinary", 2000, (Handle *, const void *)) \
    F(cuModuleLoad, "cuModuleLoad", 2000, (Handle *, const char *)) \
    F(cuModuleUnload, "cuModuleUnload", 2000, (Handle)) \
    F(cuLibraryLoadData, "cuLibraryLoadData", 12000, (Handle *, const void *, void *, void **, unsigned, void *, void **, unsigned)) \
    F(cuLibraryLoadFromFile, "cuLibraryLoadFromFile", 12000, (Handle *, const char *, void *, void **, unsigned, void *, void **, unsigned)) \
    F(cuLibraryUnload, "cuLibraryUnload", 12000, (Handle)) \
    F(cuGraphCreate, "cuGraphCreate", 10000, (Handle *, unsigned)) \
    F(cuGraphClone, "cuGraphClone", 10000, (Handle *, Handle)) \
    F(cuGraphDestroy, "cuGraphDestroy", 10000, (Handle)) \
    F(cuGraphAddMemAllocNode, "cuGraphAddMemAllocNode", 11040, (Handle *, Handle, const Handle *, size_t, AllocNodeParams *)) \
    F(cuGraphAddMemFreeNode, "cuGraphAddMemFreeNode", 11040, (Handle *, Handle, const Handle *, size_t, CUdeviceptr)) \
    F(cuGraphAddChildGraphNode, "cuGraphAddChildGraphNode", 10000, (Handle *, Handle, const Handle *, size_t, Handle)) \
    F(cuGraphAddNode_v2, "cuGraphAddNode", 12030, (Handle *, Handle, const Handle *, const void *, size_t, NodeParams *)) \
    F(cuGraphInstantiateWithFlags, "cuGraphInstantiateWithFlags", 11040, (Handle *, Handle, unsigned long long)) \
    F(cuGraphInstantiateWithParams, "cuGraphInstantiateWithParams", 12000, (Handle *, Handle, void *)) \
    F(cuGraphLaunch, "cuGraphLaunch", 10000, (Handle, Handle)) \
    F(cuGraphExecDestroy, "cuGraphExecDestroy", 10000, (Handle))

#if WAY == 1
#define DECLARE(name, base, version, parameters) CUresult name parameters;
FUNCTIONS(DECLARE)
__attribute__((unused)) static void load_driver(void) {}
#else
#define DECLARE(name, base, version, parameters) static CUresult(*name) parameters;
FUNCTIONS(DECLARE)

#if WAY == 5 || WAY == 6
typedef CUresult GetProcAddress(const char *, void **, int, uint64_t);
typedef CUresult GetProcAddressV2(const char *, void **, int, uint64_t, int *);
#endif

__attribute__((unused)) static void fail(const char *name) {
    fprintf(stderr, "%s was not found: %s\n", name, dlerror());
    exit(2);
}

static void load_driver(void) {
#if WAY == 2
    void *handle = dlopen("libcuda.so.1", RTLD_NOW);
#elif WAY == 3
    void *handle = RTLD_DEFAULT;
#elif WAY == 4
    void *handle = RTLD_NEXT;
#else
    void *handle = dlopen("libcuda.so.1", RTLD_NOW);
#endif
    if (!handle && WAY != 3) fail("libcuda.so.1");
#if WAY == 5
    GetProcAddress *get = (GetProcAddress *)dlsym(handle, "cuGetProcAddress");
    if (!get) fail("cuGetProcAddress");
#elif WAY == 6
    GetProcAddressV2 *first = (GetProcAddressV2 *)dlsym(handle, "cuGetProcAddress_v2");
    if (!first) fail("cuGetProcAddress_v2");
    void *itself = NULL;
    if (first("cuGetProcAddress", &itself, 12000, 0, NULL) || !itself) fail("cuGetProcAddress by itself");
    GetProcAddressV2 *get = (GetProcAddressV2 *)itself;
#endif
#if WAY == 5
#define LOAD(name, base, version, parameters) \
    if (get(base, (void **)&name, version, 0) || !name) fail(#name);
#elif WAY == 6
#define LOAD(name, base, version, parameters) \
    if (get(base, (void **)&name, version, 0, NULL) || !name) fail(#name);
#else
#define LOAD(name, base, version, parameters) \
    name = (CUresult(*) parameters)dlsym(handle, #name); \
    if (!name) fail(#name);
#endif
    FUNCTIONS(LOAD)
}
#endif
#endif

static int checks;

static void expect(CUresult expected, CUresult result, const char *call, int line) {
    if (result != expected) {
        fprintf(stderr, "line %d: %s returned %d, not %d\n", line, call, result, expected);
        exit(1);
    }
}
#define DO(call) expect(0, call, #call, __LINE__)
#define REFUSED(code, call) expect(code, call, #call, __LINE__)

/* Absent where the program is not audited. */
__attribute__((weak)) int cuguard_audit_live(const char *kind, uint64_t *count, uint64_t *bytes);

__attribute__((unused)) static void live(const char *kind, uint64_t count, uint64_t bytes, int line) {
    uint64_t has_count = 0, has_bytes = 0;
    if (!cuguard_audit_live) {
        fprintf(stderr, "not audited\n");
        exit(3);
    }
    if (cuguard_audit_live(kind, &has_count, &has_bytes)) {
        fprintf(stderr, "line %d: no kind %s\n", line, kind);
        exit(4);
    }
    if (has_count != count || has_bytes != bytes) {
        fprintf(stderr, "line %d: %s: %llu with %llu bytes, not %llu with %llu\n", line, kind, (unsigned long long)has_count,
                (unsigned long long)has_bytes, (unsigned long long)count, (unsigned long long)bytes);
        exit(1);
    }
    checks++;
}
/* How much of a kind is alive, exactly. */
#define LIVE(kind, count, bytes) live(kind, count, bytes, __LINE__)
