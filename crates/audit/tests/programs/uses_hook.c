#define WAY 1
#include "driver.h"

extern int hooked;

int main(void) {
    Handle context;
    CUdeviceptr a, b;
    DO(cuInit(0));
    DO(cuCtxCreate_v2(&context, 0, 0));
    DO(cuMemAlloc_v2(&a, 100));
    LIVE("device", 1, 100);
    /* By the handle of the hook. */
    void *hook = dlopen("libhook.so", RTLD_NOW | RTLD_NOLOAD);
    int (*alloc)(CUdeviceptr *, size_t) = (int (*)(CUdeviceptr *, size_t))dlsym(hook, "cuMemAlloc_v2");
    int before = hooked;
    DO(alloc(&b, 20));
    LIVE("device", 2, 120);
    if (hooked != before + 1) return 5;
    DO(cuMemFree_v2(a));
    DO(cuMemFree_v2(b));
    LIVE("device", 0, 0);
    printf("%d checks passed\n", checks);
    return 0;
}
