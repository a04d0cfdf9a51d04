//! Memory and events of other processes and of other APIs.

use cuguard_registry::ResourceKind;
use cuguard_sys::*;

use super::{Call, New, is_freed};
use crate::real::queries;
use crate::state::{contexts, counted};

/// The size of the block of memory at an address; 0 if the driver does not know it.
pub(super) fn size_of_range(address: CUdeviceptr) -> u64 {
    let (mut base, mut size) = (0, 0);
    // SAFETY: both can be written to.
    let result = unsafe { queries::cuMemGetAddressRange_v2(&mut base, &mut size, address) };
    match result.is_success() {
        true => size as u64,
        false => 0,
    }
}

type OpenIpc = unsafe extern "C-unwind" fn(*mut CUdeviceptr, CUipcMemHandle, u32) -> CUresult;

/// `cuIpcOpenMemHandle` and `_v2`. A handle that is opened again has the same address.
pub(crate) unsafe fn open_ipc(
    call: &Call,
    real: OpenIpc,
    out: *mut CUdeviceptr,
    handle: CUipcMemHandle,
    flags: u32,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, handle, flags) };
    if !result.is_success() || out.is_null() {
        return call.refused(result, &New::in_context(ResourceKind::Imported, 0));
    }
    // SAFETY: the driver wrote to it.
    let address = unsafe { out.read_unaligned() };
    counted::opened(address, size_of_range(address), contexts::current());
    result
}

type CloseIpc = unsafe extern "C-unwind" fn(CUdeviceptr) -> CUresult;

/// `cuIpcCloseMemHandle`
pub(crate) unsafe fn close_ipc(_: &Call, real: CloseIpc, address: CUdeviceptr) -> CUresult {
    let closing = counted::begin_close(address);
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(address) };
    if let Some(closing) = closing
        && !is_freed(result)
    {
        closing.failed();
    }
    result
}

type OpenIpcEvent = unsafe extern "C-unwind" fn(*mut CUevent, CUipcEventHandle) -> CUresult;

/// `cuIpcOpenEventHandle`
pub(crate) unsafe fn open_ipc_event(
    call: &Call,
    real: OpenIpcEvent,
    out: *mut CUevent,
    handle: CUipcEventHandle,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, handle) };
    // SAFETY: the driver wrote to it.
    unsafe { call.created(result, out, New::in_context(ResourceKind::Event, 0)) }
}

type Import = unsafe extern "C-unwind" fn(
    *mut CUexternalMemory,
    *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC,
) -> CUresult;

/// `cuImportExternalMemory`
pub(crate) unsafe fn import(
    call: &Call,
    real: Import,
    out: *mut CUexternalMemory,
    descriptor: *const CUDA_EXTERNAL_MEMORY_HANDLE_DESC,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, descriptor) };
    let bytes = match descriptor.is_null() {
        true => 0,
        // SAFETY: the driver read it.
        false => unsafe { (&raw const (*descriptor).size).read_unaligned() },
    };
    // SAFETY: the driver wrote to it.
    unsafe { call.created(result, out, New::in_process(ResourceKind::Imported, bytes)) }
}

type Destroy = unsafe extern "C-unwind" fn(CUexternalMemory) -> CUresult;

/// `cuDestroyExternalMemory`
pub(crate) unsafe fn destroy(call: &Call, real: Destroy, memory: CUexternalMemory) -> CUresult {
    // SAFETY: as the caller guarantees.
    call.freed(&[ResourceKind::Imported], memory, || unsafe {
        real(memory)
    })
}

type MapBuffer = unsafe extern "C-unwind" fn(
    *mut CUdeviceptr,
    CUexternalMemory,
    *const CUDA_EXTERNAL_MEMORY_BUFFER_DESC,
) -> CUresult;

/// `cuExternalMemoryGetMappedBuffer`, which `cuMemFree` ends. Its size is counted with the import.
pub(crate) unsafe fn map_buffer(
    call: &Call,
    real: MapBuffer,
    out: *mut CUdeviceptr,
    memory: CUexternalMemory,
    descriptor: *const CUDA_EXTERNAL_MEMORY_BUFFER_DESC,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, memory, descriptor) };
    // SAFETY: the driver wrote to it.
    unsafe { call.created(result, out, New::in_context(ResourceKind::Imported, 0)) }
}

type MapMipmappedArray = unsafe extern "C-unwind" fn(
    *mut CUmipmappedArray,
    CUexternalMemory,
    *const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC,
) -> CUresult;

/// `cuExternalMemoryGetMappedMipmappedArray`, which `cuMipmappedArrayDestroy` ends. Its size is counted with the import.
pub(crate) unsafe fn map_mipmapped_array(
    call: &Call,
    real: MapMipmappedArray,
    out: *mut CUmipmappedArray,
    memory: CUexternalMemory,
    descriptor: *const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, memory, descriptor) };
    // SAFETY: the driver wrote to it.
    unsafe { call.created(result, out, New::in_context(ResourceKind::Array, 0)) }
}
