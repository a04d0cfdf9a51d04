// For programs that use the driver API alone.
#ifndef DRIVER_H
#define DRIVER_H

#include <cuda.h>

#include "expect.h"

#define CU(call) MUST(call, CUDA_SUCCESS)

// Makes the primary context of the first device current.
static inline CUdevice open_device(void) {
    CUdevice device;
    CUcontext context;
    CU(cuInit(0));
    CU(cuDeviceGet(&device, 0));
    CU(cuDevicePrimaryCtxRetain(&context, device));
    CU(cuCtxSetCurrent(context));
    return device;
}

// Allocates device memory and forgets its address.
static APART void lose_block(size_t bytes) {
    CUdeviceptr address;
    CU(cuMemAlloc(&address, bytes));
    FORGET(address);
}

#endif
