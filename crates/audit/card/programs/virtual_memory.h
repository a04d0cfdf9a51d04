// Virtual memory management: one granule of physical memory, mapped into a reserved range.
#ifndef VIRTUAL_MEMORY_H
#define VIRTUAL_MEMORY_H

#include "driver.h"

static CUmemAllocationProp physical_properties(CUdevice device, CUmemAllocationHandleType exported) {
    CUmemAllocationProp properties;
    memset(&properties, 0, sizeof properties);
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties.location.id = device;
    properties.requestedHandleTypes = exported;
    return properties;
}

static CUdeviceptr map(CUdevice device, CUmemGenericAllocationHandle handle, size_t bytes) {
    CUdeviceptr address;
    CUmemAccessDesc access;
    memset(&access, 0, sizeof access);
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    CU(cuMemAddressReserve(&address, bytes, 0, 0, 0));
    CU(cuMemMap(address, bytes, 0, handle, 0));
    CU(cuMemSetAccess(address, bytes, &access, 1));
    return address;
}

#endif
