// The driver found at run time: dlopen and dlsym, and cuGetProcAddress as dlsym returns it. One block lost through each.
#include <dlfcn.h>

#include "driver.h"

typedef CUresult (*allocate_t)(CUdeviceptr *, size_t);

static APART void lose_by(allocate_t allocate, size_t bytes) {
    CUdeviceptr address;
    CU(allocate(&address, bytes));
    FORGET(address);
}

static void *symbol(void *library, const char *name) {
    void *found = dlsym(library, name);
    if (!found) {
        fprintf(stderr, "%s: %s\n", name, dlerror());
        exit(99);
    }
    return found;
}

int main(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library)
        skip("no libcuda.so.1");
    CUdevice device;
    CUcontext context;
    CU(((CUresult(*)(unsigned))symbol(library, "cuInit"))(0));
    CU(((CUresult(*)(CUdevice *, int))symbol(library, "cuDeviceGet"))(&device, 0));
    CU(((CUresult(*)(CUcontext *, CUdevice))symbol(library, "cuDevicePrimaryCtxRetain"))(&context, device));
    CU(((CUresult(*)(CUcontext))symbol(library, "cuCtxSetCurrent"))(context));

    lose_by((allocate_t)symbol(library, "cuMemAlloc_v2"), MIB);

    typedef CUresult (*find_t)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
    find_t find = (find_t)symbol(library, "cuGetProcAddress_v2");
    void *allocate = NULL, *find_again = NULL;
    CU(find("cuMemAlloc", &allocate, 12000, CU_GET_PROC_ADDRESS_DEFAULT, NULL));
    lose_by((allocate_t)allocate, 2 * MIB);
    // The function that finds functions, found by itself.
    CU(find("cuGetProcAddress", &find_again, 12000, CU_GET_PROC_ADDRESS_DEFAULT, NULL));
    CU(((find_t)find_again)("cuMemAlloc", &allocate, 12000, CU_GET_PROC_ADDRESS_DEFAULT, NULL));
    lose_by((allocate_t)allocate, 4 * MIB);

    clobber_stack();
    expect_memory(LOST, "device", 3, 7 * MIB);
    expected("");
    return 0;
}
