//! Virtual memory management: ranges of addresses, physical memory, and the mappings between them.
//!
//! None of these functions waits for work on the device.

use cuguard_sys::{
    CUdevice, CUdeviceptr, CUmemAccessDesc, CUmemAllocationProp, CUmemGenericAllocationHandle,
    CUmemLocation, virtual_memory,
};

use super::{Result, call, out};

/// Memory of `device`, for this process alone.
fn properties(device: CUdevice) -> CUmemAllocationProp {
    CUmemAllocationProp {
        type_: virtual_memory::ALLOCATION_TYPE_PINNED,
        location: CUmemLocation {
            type_: virtual_memory::LOCATION_TYPE_DEVICE,
            id: device,
        },
        ..CUmemAllocationProp::default()
    }
}

/// The granularity of sizes and addresses for memory of `device`.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_DEVICE`, `CUDA_ERROR_NOT_SUPPORTED`, or any other driver error.
#[inline]
pub fn granularity(device: CUdevice) -> Result<usize> {
    let (properties, option) = (properties(device), virtual_memory::GRANULARITY_MINIMUM);
    // SAFETY: the variable can be written to, the properties are read during the call.
    out(|size| unsafe { call!(cuMemGetAllocationGranularity(size, &properties, option)) })
}

/// Reserves a range of addresses: `bytes` at a multiple of `alignment`, both multiples of the granularity.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE`, `CUDA_ERROR_OUT_OF_MEMORY`, or any other driver error.
#[inline]
pub fn address_reserve(bytes: usize, alignment: usize) -> Result<CUdeviceptr> {
    // SAFETY: the variable can be written to; the driver checks the numbers.
    out(|address| unsafe { call!(cuMemAddressReserve(address, bytes, alignment, 0, 0)) })
}

/// Frees a range that [`address_reserve`] returned.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE` where memory is mapped in it, or any other driver error.
///
/// # Safety
///
/// The range is reserved as a whole, and no address of it is used afterwards.
#[inline]
pub unsafe fn address_free(address: CUdeviceptr, bytes: usize) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuMemAddressFree(address, bytes)) }
}

/// Creates physical memory of `device`, for this process alone. It is uninitialized.
///
/// # Errors
///
/// `CUDA_ERROR_OUT_OF_MEMORY`, `CUDA_ERROR_INVALID_VALUE` where the size is not a multiple of the granularity, or any other
/// driver error.
#[inline]
pub fn create(bytes: usize, device: CUdevice) -> Result<CUmemGenericAllocationHandle> {
    let properties = properties(device);
    // SAFETY: the variable can be written to, the properties are read during the call.
    out(|handle| unsafe { call!(cuMemCreate(handle, bytes, &properties, 0)) })
}

/// Releases a handle. The memory is freed when it is mapped nowhere.
///
/// # Errors
///
/// Any driver error.
///
/// # Safety
///
/// The handle is from [`create`], and is not used afterwards.
#[inline]
pub unsafe fn release(handle: CUmemGenericAllocationHandle) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuMemRelease(handle)) }
}

/// Maps all of a handle's memory, which has this size. The same memory may be mapped at several addresses.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE` where the range is not reserved or memory is mapped there, or any other driver error.
///
/// # Safety
///
/// The handle is alive. What is mapped elsewhere is memory that is accessed through both addresses.
#[inline]
pub unsafe fn map(
    address: CUdeviceptr,
    bytes: usize,
    handle: CUmemGenericAllocationHandle,
) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuMemMap(address, bytes, 0, handle, 0)) }
}

/// Unmaps all mappings in a range.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE` where a mapping is only in part in the range, or any other driver error.
///
/// # Safety
///
/// Nothing accesses the addresses: no work on the device that is enqueued uses them.
#[inline]
pub unsafe fn unmap(address: CUdeviceptr, bytes: usize) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuMemUnmap(address, bytes)) }
}

/// Permits `device` to read and write a range in which memory is mapped everywhere.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE` where nothing is mapped, or any other driver error.
///
/// # Safety
///
/// The range is one of [`address_reserve`], and only contains mappings of the caller.
#[inline]
pub unsafe fn set_access(address: CUdeviceptr, bytes: usize, device: CUdevice) -> Result {
    let access = CUmemAccessDesc {
        location: CUmemLocation {
            type_: virtual_memory::LOCATION_TYPE_DEVICE,
            id: device,
        },
        flags: virtual_memory::ACCESS_READWRITE,
    };
    // SAFETY: one description, which is read during the call; the rest is as the caller ensures.
    unsafe { call!(cuMemSetAccess(address, bytes, &access, 1)) }
}
