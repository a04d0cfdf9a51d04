//! Page-locked host memory, allocated and registered.

use std::ffi::c_void;

use cuguard_registry::ResourceKind;
use cuguard_sys::*;

use super::{Call, New};

/// `CU_MEMHOSTALLOC_WRITECOMBINED`
const WRITE_COMBINED: u32 = 4;

type Alloc = unsafe extern "C-unwind" fn(*mut *mut c_void, usize) -> CUresult;

/// `cuMemAllocHost_v2`
pub(crate) unsafe fn alloc(
    call: &Call,
    real: Alloc,
    out: *mut *mut c_void,
    bytesize: usize,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, bytesize) };
    // SAFETY: the driver wrote to it.
    unsafe {
        call.created(
            result,
            out,
            New::in_context(ResourceKind::Pinned, bytesize as u64),
        )
    }
}

type AllocV1 = unsafe extern "C-unwind" fn(*mut *mut c_void, u32) -> CUresult;

/// `cuMemAllocHost`
pub(crate) unsafe fn alloc_v1(
    call: &Call,
    real: AllocV1,
    out: *mut *mut c_void,
    bytesize: u32,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, bytesize) };
    // SAFETY: the driver wrote to it.
    unsafe {
        call.created(
            result,
            out,
            New::in_context(ResourceKind::Pinned, bytesize.into()),
        )
    }
}

type AllocWithFlags = unsafe extern "C-unwind" fn(*mut *mut c_void, usize, u32) -> CUresult;

/// `cuMemHostAlloc`
pub(crate) unsafe fn alloc_with_flags(
    call: &Call,
    real: AllocWithFlags,
    out: *mut *mut c_void,
    bytesize: usize,
    flags: u32,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, bytesize, flags) };
    let kind = match flags & WRITE_COMBINED {
        0 => ResourceKind::Pinned,
        _ => ResourceKind::WriteCombined,
    };
    // SAFETY: the driver wrote to it.
    unsafe { call.created(result, out, New::in_context(kind, bytesize as u64)) }
}

type Free = unsafe extern "C-unwind" fn(*mut c_void) -> CUresult;

/// `cuMemFreeHost`
pub(crate) unsafe fn free(call: &Call, real: Free, p: *mut c_void) -> CUresult {
    // SAFETY: as the caller guarantees.
    call.freed(
        &[ResourceKind::Pinned, ResourceKind::WriteCombined],
        p,
        || unsafe { real(p) },
    )
}

type Register = unsafe extern "C-unwind" fn(*mut c_void, usize, u32) -> CUresult;

/// `cuMemHostRegister` and `_v2`
pub(crate) unsafe fn register(
    call: &Call,
    real: Register,
    p: *mut c_void,
    bytesize: usize,
    flags: u32,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(p, bytesize, flags) };
    let new = New::in_context(ResourceKind::Registered, bytesize as u64);
    // SAFETY: a value of this function.
    unsafe { call.created(result, &raw const p, new) }
}

type Unregister = unsafe extern "C-unwind" fn(*mut c_void) -> CUresult;

/// `cuMemHostUnregister`
pub(crate) unsafe fn unregister(call: &Call, real: Unregister, p: *mut c_void) -> CUresult {
    // SAFETY: as the caller guarantees.
    call.freed(&[ResourceKind::Registered], p, || unsafe { real(p) })
}
