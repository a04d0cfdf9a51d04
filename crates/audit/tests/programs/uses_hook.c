#define WAY 1
#include "driver.h"

extern int hooked;

int main(void) {
    Handle context;
    CUdeviceptr a, b, c;
    DO(cuInit(0));
    DO(cuCtxCreate_v2(&context, 0, 0));
    DO(cuMemAlloc_v2(&a, 100));
    LIVE("device", 1, 100);
    /* The program is linked against the hook, which is called as without the audit library. */
    if (hooked != 1) return 4;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    int (*direct)(CUdeviceptr *, size_t) = (int (*)(CUdeviceptr *, size_t))dlsym(driver, "cuMemAlloc_v2");
    DO(direct(&c, 3));
    LIVE("device", 2, 103);
    if (hooked != 1) return 4;
    DO(cuMemFree_v2(c));
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
