//! Virtual memory: reserved addresses, physical memory, mappings. None of it belongs to a context.

use std::ffi::c_void;

use cuguard_registry::ResourceKind;
use cuguard_sys::*;

use super::{Call, New, device_at, is_freed};
use crate::state::mappings;

impl Call {
    /// After a call that creates physical memory.
    ///
    /// # Safety
    ///
    /// `out` is null or what the driver wrote to.
    unsafe fn created_physical(
        &self,
        result: CUresult,
        out: *const CUmemGenericAllocationHandle,
        bytes: u64,
        device: Option<CUdevice>,
    ) -> CUresult {
        if !result.is_success() || out.is_null() {
            let new = New::in_process(ResourceKind::Physical, bytes).on(device);
            return self.refused(result, &new);
        }
        // SAFETY: as the caller guarantees.
        mappings::created(unsafe { out.read_unaligned() }, bytes, device);
        result
    }
}

type Create = unsafe extern "C-unwind" fn(
    *mut CUmemGenericAllocationHandle,
    usize,
    *const CUmemAllocationProp,
    u64,
) -> CUresult;

/// `cuMemCreate`
pub(crate) unsafe fn create(
    call: &Call,
    real: Create,
    out: *mut CUmemGenericAllocationHandle,
    size: usize,
    properties: *const CUmemAllocationProp,
    flags: u64,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, size, properties, flags) };
    // SAFETY: as the caller guarantees.
    let properties = unsafe { properties.as_ref() };
    let device = properties.and_then(|properties| device_at(properties.location));
    // SAFETY: the driver wrote to it.
    unsafe { call.created_physical(result, out, size as u64, device) }
}

type Import = unsafe extern "C-unwind" fn(
    *mut CUmemGenericAllocationHandle,
    *mut c_void,
    CUmemAllocationHandleType,
) -> CUresult;

/// `cuMemImportFromShareableHandle`. The driver does not tell the size, and the memory is another process's.
pub(crate) unsafe fn import(
    call: &Call,
    real: Import,
    out: *mut CUmemGenericAllocationHandle,
    os_handle: *mut c_void,
    handle_type: CUmemAllocationHandleType,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, os_handle, handle_type) };
    // SAFETY: the driver wrote to it.
    unsafe { call.created_physical(result, out, 0, None) }
}

type CreateMulticast = unsafe extern "C-unwind" fn(
    *mut CUmemGenericAllocationHandle,
    *const CUmulticastObjectProp,
) -> CUresult;

/// `cuMulticastCreate`: a handle like those of physical memory, without memory of its own.
pub(crate) unsafe fn create_multicast(
    call: &Call,
    real: CreateMulticast,
    out: *mut CUmemGenericAllocationHandle,
    properties: *const CUmulticastObjectProp,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, properties) };
    // SAFETY: the driver wrote to it.
    unsafe { call.created_physical(result, out, 0, None) }
}

type Retain =
    unsafe extern "C-unwind" fn(*mut CUmemGenericAllocationHandle, *mut c_void) -> CUresult;

/// `cuMemRetainAllocationHandle`
pub(crate) unsafe fn retain(
    _: &Call,
    real: Retain,
    out: *mut CUmemGenericAllocationHandle,
    address: *mut c_void,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, address) };
    if result.is_success() && !out.is_null() {
        // SAFETY: the driver wrote to it.
        mappings::retained(unsafe { out.read_unaligned() }, address.addr() as u64);
    }
    result
}

type Release = unsafe extern "C-unwind" fn(CUmemGenericAllocationHandle) -> CUresult;

/// `cuMemRelease`
pub(crate) unsafe fn release(
    _: &Call,
    real: Release,
    handle: CUmemGenericAllocationHandle,
) -> CUresult {
    let releasing = mappings::begin_release(handle);
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(handle) };
    match releasing {
        Some(releasing) if is_freed(result) => releasing.released(),
        Some(releasing) => releasing.failed(),
        None => {}
    }
    result
}

type Map = unsafe extern "C-unwind" fn(
    CUdeviceptr,
    usize,
    usize,
    CUmemGenericAllocationHandle,
    u64,
) -> CUresult;

/// `cuMemMap`
pub(crate) unsafe fn map(
    _: &Call,
    real: Map,
    address: CUdeviceptr,
    size: usize,
    offset: usize,
    handle: CUmemGenericAllocationHandle,
    flags: u64,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(address, size, offset, handle, flags) };
    if result.is_success() {
        mappings::mapped(address, size as u64, handle);
    }
    result
}

type Unmap = unsafe extern "C-unwind" fn(CUdeviceptr, usize) -> CUresult;

/// `cuMemUnmap`
pub(crate) unsafe fn unmap(_: &Call, real: Unmap, address: CUdeviceptr, size: usize) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(address, size) };
    if is_freed(result) {
        mappings::unmapped(address, size as u64);
    }
    result
}

type Reserve =
    unsafe extern "C-unwind" fn(*mut CUdeviceptr, usize, usize, CUdeviceptr, u64) -> CUresult;

/// `cuMemAddressReserve`
pub(crate) unsafe fn reserve(
    call: &Call,
    real: Reserve,
    out: *mut CUdeviceptr,
    size: usize,
    alignment: usize,
    address: CUdeviceptr,
    flags: u64,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, size, alignment, address, flags) };
    let new = New::in_process(ResourceKind::AddressRange, size as u64);
    // SAFETY: the driver wrote to it.
    unsafe { call.created(result, out, new) }
}

type FreeReserved = unsafe extern "C-unwind" fn(CUdeviceptr, usize) -> CUresult;

/// `cuMemAddressFree`
pub(crate) unsafe fn free_reserved(
    call: &Call,
    real: FreeReserved,
    address: CUdeviceptr,
    size: usize,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    call.freed(&[ResourceKind::AddressRange], address, || unsafe {
        real(address, size)
    })
}
