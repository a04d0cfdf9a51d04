// Physical memory that is mapped and neither unmapped nor released: the handle, the mapping and the range are lost.
#include "virtual_memory.h"

static APART size_t lose_mapped(CUdevice device) {
    CUmemAllocationProp properties = physical_properties(device, CU_MEM_HANDLE_TYPE_NONE);
    CUmemGenericAllocationHandle handle;
    size_t bytes;
    CU(cuMemGetAllocationGranularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CU(cuMemCreate(&handle, bytes, &properties, 0));
    CUdeviceptr address = map(device, handle, bytes);
    FORGET(address);
    FORGET(handle);
    return bytes;
}

int main(void) {
    CUdevice device = open_device();
    size_t bytes = lose_mapped(device);
    clobber_stack();
    expect_memory(LOST, "physical", 1, bytes);
    expected("\"handles\": {\"address_range\": 1}");
    return 0;
}
