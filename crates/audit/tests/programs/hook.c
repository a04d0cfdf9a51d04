/* A library that stands before the driver, as programs have them for their own purposes. */
#define _GNU_SOURCE
#include <dlfcn.h>

typedef unsigned long long CUdeviceptr;
int hooked;

int cuMemAlloc_v2(CUdeviceptr *out, unsigned long bytes) {
    int (*next)(CUdeviceptr *, unsigned long) = (int (*)(CUdeviceptr *, unsigned long))dlsym(RTLD_NEXT, "cuMemAlloc_v2");
    hooked++;
    return next ? next(out, bytes) : -1;
}
