// Physical memory that is exported as a file descriptor and imported again: the first handle is released, the imported one lost.
#include <unistd.h>

#include "virtual_memory.h"

static APART size_t lose_imported(CUdevice device) {
    CUmemAllocationProp properties = physical_properties(device, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    CUmemGenericAllocationHandle created, imported;
    size_t bytes;
    int descriptor;
    CU(cuMemGetAllocationGranularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    if (cuMemCreate(&created, bytes, &properties, 0) != CUDA_SUCCESS)
        skip("memory cannot be exported as a file descriptor");
    CU(cuMemExportToShareableHandle(&descriptor, created, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    CU(cuMemImportFromShareableHandle(&imported, (void *)(size_t)descriptor, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    CU(cuMemRelease(created));
    close(descriptor);
    FORGET(created);
    FORGET(imported);
    return bytes;
}

int main(void) {
    CUdevice device = open_device();
    size_t bytes = lose_imported(device);
    clobber_stack();
    // The driver does not say how large imported memory is until it is mapped: the count is exact, the size is not compared.
    expect_memory(LOST, "physical", 1, bytes);
    expected("\"compare_bytes\": false");
    return 0;
}
