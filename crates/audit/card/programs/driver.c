// The driver API, linked directly: one block freed, two lost, one held by a global.
#include "driver.h"

static volatile CUdeviceptr kept;

static APART void keep_one_free_one(void) {
    CUdeviceptr address;
    CU(cuMemAlloc(&address, MIB));
    kept = address;
    CU(cuMemAlloc(&address, MIB));
    CU(cuMemFree(address));
    FORGET(address);
}

int main(void) {
    open_device();
    lose_block(MIB);
    lose_block(3 * MIB);
    keep_one_free_one();
    clobber_stack();
    expect_memory(LOST, "device", 2, 4 * MIB);
    expect_memory(REACHABLE, "device", 1, MIB);
    expected("\"mentions\": [\"lose_block\", \"kept\"]");
    return 0;
}
