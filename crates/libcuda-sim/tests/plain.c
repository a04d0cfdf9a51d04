/* A C program that uses the driver: allocates, fills, copies both ways, checks, frees.
 * It declares the functions itself, so it needs no CUDA header. */

#include <stdio.h>
#include <stdlib.h>

typedef int CUresult;
typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;

CUresult cuInit(unsigned flags);
CUresult cuGetErrorName(CUresult code, const char **name);
CUresult cuDeviceGet(CUdevice *device, int ordinal);
CUresult cuDeviceGetName(char *name, int length, CUdevice device);
CUresult cuCtxCreate_v2(CUcontext *context, unsigned flags, CUdevice device);
CUresult cuCtxDestroy_v2(CUcontext context);
CUresult cuCtxSynchronize(void);
CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes);
CUresult cuMemFree_v2(CUdeviceptr address);
CUresult cuMemsetD32_v2(CUdeviceptr address, unsigned value, size_t count);
CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes);
CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes);
CUresult cuModuleLoadData(void **module, const void *image);
CUresult cuModuleGetFunction(void **function, void *module, const char *name);
CUresult cuModuleUnload(void *module);
CUresult cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                        unsigned bz, unsigned shared, void *stream, void **parameters, void **extra);

static CUresult expect(CUresult expected, CUresult code, const char *call) {
    if (code != expected) {
        const char *name = NULL;
        cuGetErrorName(code, &name);
        fprintf(stderr, "%s returned %d (%s), not %d\n", call, code, name ? name : "?", expected);
        exit(1);
    }
    return code;
}
#define DO(call) expect(0, call, #call)
#define REFUSED(code, call) expect(code, call, #call)

enum { COUNT = 1000 };

int main(void) {
    static unsigned sent[COUNT], received[COUNT];
    char name[100];
    CUdevice device;
    CUcontext context;
    CUdeviceptr memory;
    void *module, *function;
    const char *code = ".version 6.4\n.target sm_52\n.address_size 64\n.visible .entry nothing() { ret; }\n";

    REFUSED(3, cuDeviceGet(&device, 0)); /* not initialized */
    DO(cuInit(0));
    DO(cuInit(0));
    DO(cuDeviceGet(&device, 0));
    DO(cuDeviceGetName(name, sizeof name, device));
    DO(cuCtxCreate_v2(&context, 0, device));
    DO(cuMemAlloc_v2(&memory, sizeof sent));

    for (int i = 0; i < COUNT; i++)
        sent[i] = i * i;
    DO(cuMemsetD32_v2(memory, 77, COUNT));
    DO(cuMemcpyHtoD_v2(memory, sent, sizeof sent / 2));
    DO(cuMemcpyDtoH_v2(received, memory, sizeof received));
    for (int i = 0; i < COUNT; i++) {
        unsigned expected = i < COUNT / 2 ? sent[i] : 77;
        if (received[i] != expected) {
            fprintf(stderr, "number %d came back as %u, not %u\n", i, received[i], expected);
            return 1;
        }
    }

    DO(cuModuleLoadData(&module, code));
    DO(cuModuleGetFunction(&function, module, "nothing"));
    REFUSED(500, cuModuleGetFunction(&function, module, "something")); /* not found */
    DO(cuModuleGetFunction(&function, module, "nothing"));
    DO(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    DO(cuCtxSynchronize());
    DO(cuModuleUnload(module));
    DO(cuMemFree_v2(memory));
    REFUSED(1, cuMemFree_v2(memory)); /* invalid value: freed already */
    DO(cuCtxDestroy_v2(context));
    printf("device: %s\n%d numbers came back as they were sent\n", name, COUNT);
    return 0;
}
