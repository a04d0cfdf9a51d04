/* A library that is linked against the driver and loaded by dlopen: the driver is in its own scope alone. */
#define _GNU_SOURCE
#include <dlfcn.h>

typedef unsigned long long CUdeviceptr;
typedef int Alloc(CUdeviceptr *, unsigned long);
int cuMemAlloc_v2(CUdeviceptr *, unsigned long);

int linked(CUdeviceptr *out) { return cuMemAlloc_v2(out, 100); }

int by_scope(int next, CUdeviceptr *out) {
    Alloc *alloc = (Alloc *)dlsym(next ? RTLD_NEXT : RTLD_DEFAULT, "cuMemAlloc_v2");
    return alloc ? alloc(out, 10) : -1;
}
