// The handle is released while the memory is mapped, so the mapping keeps the memory alive. One mapped address is
// held by a global, as a growing buffer does it; the other is lost.
#include "virtual_memory.h"

static volatile CUdeviceptr kept;

static APART size_t release_mapped(CUdevice device, int keep) {
    CUmemAllocationProp properties = physical_properties(device, CU_MEM_HANDLE_TYPE_NONE);
    CUmemGenericAllocationHandle handle;
    size_t bytes;
    CU(cuMemGetAllocationGranularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CU(cuMemCreate(&handle, bytes, &properties, 0));
    CUdeviceptr address = map(device, handle, bytes);
    CU(cuMemRelease(handle));
    if (keep)
        kept = address;
    FORGET(address);
    FORGET(handle);
    return bytes;
}

int main(void) {
    CUdevice device = open_device();
    size_t bytes = release_mapped(device, 0);
    release_mapped(device, 1);
    clobber_stack();
    expect_memory(LOST, "mapped", 1, bytes);
    expect_memory(REACHABLE, "mapped", 1, bytes);
    expected("\"handles\": {\"address_range\": 2}");
    return 0;
}
