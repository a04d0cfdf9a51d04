//! Device memory: plain, pitched and managed.

use cuguard_registry::ResourceKind;
use cuguard_sys::*;

use super::{Call, New};

/// What `cuMemFree` can free: also stream-ordered memory, memory of graphs, and buffers of imported memory.
const FREEABLE: &[ResourceKind] = &[
    ResourceKind::Device,
    ResourceKind::Managed,
    ResourceKind::StreamOrdered,
    ResourceKind::GraphMemory,
    ResourceKind::Imported,
];

type Alloc = unsafe extern "C-unwind" fn(*mut CUdeviceptr, usize) -> CUresult;

/// `cuMemAlloc_v2`
pub(crate) unsafe fn alloc(
    call: &Call,
    real: Alloc,
    out: *mut CUdeviceptr,
    bytesize: usize,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, bytesize) };
    // SAFETY: the driver wrote to it.
    unsafe {
        call.created(
            result,
            out,
            New::in_context(ResourceKind::Device, bytesize as u64),
        )
    }
}

type AllocV1 = unsafe extern "C-unwind" fn(*mut CUdeviceptr_v1, u32) -> CUresult;

/// `cuMemAlloc`, with addresses of 32 bits
pub(crate) unsafe fn alloc_v1(
    call: &Call,
    real: AllocV1,
    out: *mut CUdeviceptr_v1,
    bytesize: u32,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, bytesize) };
    // SAFETY: the driver wrote to it.
    unsafe {
        call.created(
            result,
            out,
            New::in_context(ResourceKind::Device, bytesize.into()),
        )
    }
}

type AllocPitch =
    unsafe extern "C-unwind" fn(*mut CUdeviceptr, *mut usize, usize, usize, u32) -> CUresult;

/// `cuMemAllocPitch_v2`
pub(crate) unsafe fn alloc_pitch(
    call: &Call,
    real: AllocPitch,
    out: *mut CUdeviceptr,
    pitch: *mut usize,
    width_in_bytes: usize,
    height: usize,
    element_size_bytes: u32,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, pitch, width_in_bytes, height, element_size_bytes) };
    // SAFETY: the driver wrote to it, if it succeeded.
    let pitch = unsafe { pitch_of(result, pitch, width_in_bytes) };
    let bytes = (pitch as u64).saturating_mul(height as u64);
    // SAFETY: the driver wrote to it.
    unsafe { call.created(result, out, New::in_context(ResourceKind::Device, bytes)) }
}

type AllocPitchV1 =
    unsafe extern "C-unwind" fn(*mut CUdeviceptr_v1, *mut u32, u32, u32, u32) -> CUresult;

/// `cuMemAllocPitch`, with addresses of 32 bits
pub(crate) unsafe fn alloc_pitch_v1(
    call: &Call,
    real: AllocPitchV1,
    out: *mut CUdeviceptr_v1,
    pitch: *mut u32,
    width_in_bytes: u32,
    height: u32,
    element_size_bytes: u32,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, pitch, width_in_bytes, height, element_size_bytes) };
    // SAFETY: the driver wrote to it, if it succeeded.
    let pitch = unsafe { pitch_of(result, pitch, width_in_bytes) };
    let bytes = u64::from(pitch).saturating_mul(height.into());
    // SAFETY: the driver wrote to it.
    unsafe { call.created(result, out, New::in_context(ResourceKind::Device, bytes)) }
}

/// The pitch that the driver wrote, or the width of a row where it failed.
///
/// # Safety
///
/// If the driver succeeded, `pitch` is null or can be read.
unsafe fn pitch_of<T: Copy>(result: CUresult, pitch: *const T, width: T) -> T {
    match result.is_success() && !pitch.is_null() {
        // SAFETY: as the caller guarantees.
        true => unsafe { pitch.read_unaligned() },
        false => width,
    }
}

type AllocManaged = unsafe extern "C-unwind" fn(*mut CUdeviceptr, usize, u32) -> CUresult;

/// `cuMemAllocManaged`
pub(crate) unsafe fn alloc_managed(
    call: &Call,
    real: AllocManaged,
    out: *mut CUdeviceptr,
    bytesize: usize,
    flags: u32,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, bytesize, flags) };
    // SAFETY: the driver wrote to it.
    unsafe {
        call.created(
            result,
            out,
            New::in_context(ResourceKind::Managed, bytesize as u64),
        )
    }
}

type Free = unsafe extern "C-unwind" fn(CUdeviceptr) -> CUresult;

/// `cuMemFree_v2`
pub(crate) unsafe fn free(call: &Call, real: Free, dptr: CUdeviceptr) -> CUresult {
    // SAFETY: as the caller guarantees.
    call.freed(FREEABLE, dptr, || unsafe { real(dptr) })
}

type FreeV1 = unsafe extern "C-unwind" fn(CUdeviceptr_v1) -> CUresult;

/// `cuMemFree`, with addresses of 32 bits
pub(crate) unsafe fn free_v1(call: &Call, real: FreeV1, dptr: CUdeviceptr_v1) -> CUresult {
    // SAFETY: as the caller guarantees.
    call.freed(FREEABLE, dptr, || unsafe { real(dptr) })
}
