// Physical memory that is unmapped, its range freed, and the handle never released: two blocks, one handle still known.
#include "virtual_memory.h"

static volatile CUmemGenericAllocationHandle kept;

static APART size_t unmap_without_release(CUdevice device, int keep) {
    CUmemAllocationProp properties = physical_properties(device, CU_MEM_HANDLE_TYPE_NONE);
    CUmemGenericAllocationHandle handle;
    size_t bytes;
    CU(cuMemGetAllocationGranularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CU(cuMemCreate(&handle, bytes, &properties, 0));
    CUdeviceptr address = map(device, handle, bytes);
    CU(cuMemUnmap(address, bytes));
    CU(cuMemAddressFree(address, bytes));
    if (keep)
        kept = handle;
    FORGET(address);
    FORGET(handle);
    return bytes;
}

int main(void) {
    CUdevice device = open_device();
    size_t bytes = unmap_without_release(device, 0);
    unmap_without_release(device, 1);
    clobber_stack();
    expect_memory(LOST, "physical", 1, bytes);
    expect_memory(REACHABLE, "physical", 1, bytes);
    expected("\"handles\": {\"address_range\": 0}");
    return 0;
}
