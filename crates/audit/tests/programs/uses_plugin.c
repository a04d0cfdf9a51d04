#define WAY 2
#include "driver.h"

int main(void) {
    Handle context;
    CUdeviceptr a, b, c;
    void *plugin = dlopen("libplugin.so", RTLD_NOW | RTLD_LOCAL);
    if (!plugin) fail("libplugin.so");
    int (*linked)(CUdeviceptr *) = (int (*)(CUdeviceptr *))dlsym(plugin, "linked");
    int (*by_scope)(int, CUdeviceptr *) = (int (*)(int, CUdeviceptr *))dlsym(plugin, "by_scope");
    load_driver();
    DO(cuInit(0));
    DO(cuCtxCreate_v2(&context, 0, 0));
    DO(linked(&a));
    LIVE("device", 1, 100);
    DO(by_scope(0, &b));
    LIVE("device", 2, 110);
    DO(by_scope(1, &c));
    LIVE("device", 3, 120);
    DO(cuMemFree_v2(a));
    DO(cuMemFree_v2(b));
    DO(cuMemFree_v2(c));
    LIVE("device", 0, 0);
    printf("%d checks passed\n", checks);
    return 0;
}
