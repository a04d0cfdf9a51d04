/* A libcuda.so.1 that only counts: the functions that the simulated driver does not have, some whose signature is of 32 bits,
 * one that is newer than the audit library, and one that calls another by its exported name. */
#include <stddef.h>
#include <string.h>
#include <unistd.h>

typedef int CUresult;
typedef unsigned long long CUdeviceptr;
typedef void *Handle;
typedef struct { char bytes[64]; } Ipc;

static unsigned long long next = 0x7f0000000000ull;
static unsigned long long number(void) { return next += 0x10000; }
static void *current;
/* What the next call that frees returns. */
int pretend_result;
static CUresult freed(void) {
    CUresult result = pretend_result;
    pretend_result = 0;
    return result;
}

CUresult cuInit(unsigned flags) { (void)flags; return 0; }
CUresult cuCtxGetCurrent(Handle *out) { *out = current; return 0; }
CUresult cuCtxCreate_v2(Handle *out, unsigned flags, int device) {
    (void)flags, (void)device;
    *out = current = (Handle)(size_t)number();
    return 0;
}
CUresult cuCtxDestroy_v2(Handle context) {
    if (pretend_result) return freed();
    if (current == context) current = NULL;
    return 0;
}
CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address) {
    *base = address;
    *size = 4096;
    return 0;
}

CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes) { (void)bytes; *out = number(); return 0; }
/* Calls itself the newer function by its exported name. */
CUresult cuMemAlloc(unsigned *out, unsigned bytes) {
    CUdeviceptr wide;
    CUresult result = cuMemAlloc_v2(&wide, bytes);
    *out = (unsigned)(wide >> 16);
    return result;
}
CUresult cuMemFree_v2(CUdeviceptr address) { (void)address; return freed(); }
CUresult cuMemFree(unsigned address) { (void)address; return 0; }
CUresult cuMemAllocPitch(unsigned *out, unsigned *pitch, unsigned width, unsigned height, unsigned size) {
    (void)width, (void)height, (void)size;
    *out = 0x5000;
    *pitch = 512;
    return 0;
}
CUresult cuMemAllocHost(void **out, unsigned bytes) { (void)bytes; *out = (void *)(size_t)number(); return 0; }
CUresult cuMemFreeHost(void *address) { (void)address; return 0; }
CUresult cuMemFreeAsync(CUdeviceptr address, Handle stream) { (void)address, (void)stream; return 0; }

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, Ipc handle, unsigned flags) {
    (void)flags;
    *out = 0x600000000000ull + (unsigned char)handle.bytes[0] * 0x10000ull;
    return 0;
}
CUresult cuIpcCloseMemHandle(CUdeviceptr address) { (void)address; return freed(); }
CUresult cuIpcOpenEventHandle(Handle *out, Ipc handle) { (void)handle; *out = (Handle)(size_t)number(); return 0; }
CUresult cuEventDestroy_v2(Handle event) { (void)event; return 0; }
CUresult cuImportExternalMemory(Handle *out, const void *descriptor) { (void)descriptor; *out = (Handle)(size_t)number(); return 0; }
CUresult cuDestroyExternalMemory(Handle memory) { (void)memory; return 0; }
CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *out, Handle memory, const void *descriptor) {
    (void)memory, (void)descriptor;
    *out = number();
    return 0;
}
CUresult cuExternalMemoryGetMappedMipmappedArray(Handle *out, Handle memory, const void *descriptor) {
    (void)memory, (void)descriptor;
    *out = (Handle)(size_t)number();
    return 0;
}
CUresult cuMipmappedArrayCreate(Handle *out, const void *descriptor, unsigned levels) {
    (void)descriptor, (void)levels;
    *out = (Handle)(size_t)number();
    return 0;
}
CUresult cuMipmappedArrayDestroy(Handle array) { (void)array; return 0; }
CUresult cuArrayCreate(Handle *out, const void *descriptor) { (void)descriptor; *out = (Handle)(size_t)number(); return 0; }
CUresult cuArray3DCreate(Handle *out, const void *descriptor) { (void)descriptor; *out = (Handle)(size_t)number(); return 0; }
CUresult cuArrayDestroy(Handle array) { (void)array; return 0; }
CUresult cuMemImportFromShareableHandle(unsigned long long *out, void *handle, int type) {
    (void)handle, (void)type;
    *out = number();
    return 0;
}
CUresult cuMulticastCreate(unsigned long long *out, const void *properties) { (void)properties; *out = number(); return 0; }
CUresult cuMemRelease(unsigned long long handle) { (void)handle; return freed(); }
CUresult cuMemPoolImportFromShareableHandle(Handle *out, void *handle, int type, unsigned long long flags) {
    (void)handle, (void)type, (void)flags;
    *out = (Handle)(size_t)number();
    return 0;
}
CUresult cuMemPoolDestroy(Handle pool) { (void)pool; return 0; }
CUresult cuMemPoolImportPointer(CUdeviceptr *out, Handle pool, void *data) { (void)pool, (void)data; *out = number(); return 0; }
CUresult cuGreenCtxCreate(Handle *out, Handle resources, int device, unsigned flags) {
    (void)resources, (void)device, (void)flags;
    *out = (Handle)(size_t)number();
    return 0;
}
CUresult cuGreenCtxDestroy(Handle context) { (void)context; return 0; }
CUresult cuCtxFromGreenCtx(Handle *out, Handle green) { *out = (Handle)((size_t)green + 8); return 0; }
CUresult cuCtxSetCurrent(Handle context) { current = context; return 0; }
CUresult cuGreenCtxStreamCreate(Handle *out, Handle green, unsigned flags, int priority) {
    (void)green, (void)flags, (void)priority;
    *out = (Handle)(size_t)number();
    return 0;
}
CUresult cuStreamDestroy_v2(Handle stream) { (void)stream; return 0; }
CUresult cuGLCtxCreate_v2(Handle *out, unsigned flags, int device) { return cuCtxCreate_v2(out, flags, device); }
CUresult cuGraphCreate(Handle *out, unsigned flags) { (void)flags; *out = (Handle)(size_t)number(); return 0; }
CUresult cuGraphAddNode_v2(Handle *out, Handle graph, const Handle *dependencies, const void *edges, size_t count, void *params) {
    (void)graph, (void)dependencies, (void)edges, (void)count, (void)params;
    *out = (Handle)(size_t)number();
    return 0;
}
CUresult cuGraphDestroy(Handle graph) { (void)graph; return 0; }

/* A cancellation point. */
CUresult cuCtxSynchronize(void) { sleep(60); return 0; }

/* Newer than the audit library: ten arguments, so that some are on the stack. */
CUresult cuShinyMemAlloc(long a, long b, long c, long d, long e, long f, long g, long h, double x, double y) {
    return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * x + 10 * y;
}
CUresult cuShinyQuery(int a) { return a; }
/* Newer versions than those that the audit library knows, with other arguments; and one that is not exported. */
CUresult cuCtxCreate_v9(long a, long b, long c, long d, long e, long f, long g, long h) {
    return a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h;
}
CUresult cuStreamBeginCapture_v7_ptsz(long a, long b, long c, long d, long e, long f, long g, long h) {
    return cuCtxCreate_v9(a, b, c, d, e, f, g, h) + 1;
}
static CUresult not_exported(CUdeviceptr *out, size_t bytes) { return cuMemAlloc_v2(out, bytes); }

CUresult cuGetProcAddress_v2(const char *symbol, void **out, int version, unsigned long long flags, int *status) {
    (void)version, (void)flags, (void)status;
    *out = NULL;
    if (!strcmp(symbol, "cuShinyMemAlloc")) *out = (void *)cuShinyMemAlloc;
    if (!strcmp(symbol, "cuMemFree")) *out = (void *)cuMemFree_v2;
    if (!strcmp(symbol, "cuMemAlloc")) *out = (void *)not_exported;
    if (!strcmp(symbol, "cuCtxCreate")) *out = (void *)cuCtxCreate_v9;
    if (!strcmp(symbol, "cuStreamBeginCapture")) *out = (void *)cuStreamBeginCapture_v7_ptsz;
    return *out ? 0 : 500;
}
