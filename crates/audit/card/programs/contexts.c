// Two contexts. The first is destroyed with two blocks in it, the second is alive at the end with a lost one.
#include "driver.h"

static volatile CUcontext second;

static APART CUcontext create(CUdevice device) {
    CUcontext context;
#if CUDA_VERSION >= 13000
    CU(cuCtxCreate(&context, NULL, 0, device));
#else
    CU(cuCtxCreate(&context, 0, device));
#endif
    return context;
}

int main(void) {
    CUdevice device;
    CU(cuInit(0));
    CU(cuDeviceGet(&device, 0));
    CUcontext first = create(device);
    lose_block(MIB);
    lose_block(2 * MIB);
    CU(cuCtxDestroy(first));
    second = create(device);
    lose_block(5 * MIB);
    clobber_stack();
    expect_memory(DESTROYED, "device", 2, 3 * MIB);
    expect_memory(LOST, "device", 1, 5 * MIB);
    expect_kind("context", 1, 0);
    expected("");
    return 0;
}
