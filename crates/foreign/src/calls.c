/* C code that calls driver functions of CUDA 12. It declares them itself, so it needs no CUDA header. */

#include <stddef.h>
#include <stdint.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct {
    _Alignas(64) uint64_t opaque[16];
} CUtensorMap;

CUresult cuInit(unsigned flags);
CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags,
                             int *status);
CUresult cuCtxCreate_v4(CUcontext *context, void *parameters, unsigned flags, CUdevice device);
CUresult cuCtxDestroy_v2(CUcontext context);
CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes);
CUresult cuMemFree_v2(CUdeviceptr address);
CUresult cuTensorMapEncodeTiled(CUtensorMap *map, int type, unsigned rank, void *address,
                                const uint64_t *size, const uint64_t *strides, const unsigned *box,
                                const unsigned *element_strides, int interleave, int swizzle,
                                int promotion, int fill);

struct codes {
    CUresult init, find, create, encode, destroy;
    int status;
    void *found;
};

/* A tensor of 64 rows of 64 floats in boxes of 16 by 16. */
static CUresult encode(void) {
    static CUtensorMap map;
    const uint64_t size[] = {64, 64}, strides[] = {64 * sizeof(float)};
    const unsigned box[] = {16, 16}, element_strides[] = {1, 1};
    const int float32 = 7;
    CUdeviceptr address = 0;
    CUresult code = cuMemAlloc_v2(&address, 64 * 64 * sizeof(float));
    if (code == 0) {
        code = cuTensorMapEncodeTiled(&map, float32, 2, (void *)(uintptr_t)address, size, strides,
                                      box, element_strides, 0, 0, 0, 0);
        cuMemFree_v2(address);
    }
    return code;
}

/* Calls each of them on a device, and keeps the codes. */
void cuguard_foreign_calls(struct codes *codes, CUdevice device) {
    CUcontext context = NULL;
    codes->init = cuInit(0);
    codes->find = cuGetProcAddress_v2("cuCtxCreate", &codes->found, 12050, 0, &codes->status);
    codes->create = cuCtxCreate_v4(&context, NULL, 0, device);
    codes->encode = encode();
    codes->destroy = cuCtxDestroy_v2(context);
}
