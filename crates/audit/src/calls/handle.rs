//! Streams and events.

use std::ffi::c_void;

use cuguard_registry::{Owner, ResourceKind};
use cuguard_sys::*;

use super::{Address, Call, New};
use crate::state::{self, contexts};

type CreateStream = unsafe extern "C-unwind" fn(*mut CUstream, u32) -> CUresult;

/// `cuStreamCreate`
pub(crate) unsafe fn create_stream(
    call: &Call,
    real: CreateStream,
    out: *mut CUstream,
    flags: u32,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, flags) };
    // SAFETY: the driver wrote to it.
    unsafe { call.created(result, out, New::in_context(ResourceKind::Stream, 0)) }
}

type CreateStreamWithPriority = unsafe extern "C-unwind" fn(*mut CUstream, u32, i32) -> CUresult;

/// `cuStreamCreateWithPriority`
pub(crate) unsafe fn create_stream_with_priority(
    call: &Call,
    real: CreateStreamWithPriority,
    out: *mut CUstream,
    flags: u32,
    priority: i32,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, flags, priority) };
    // SAFETY: the driver wrote to it.
    unsafe { call.created(result, out, New::in_context(ResourceKind::Stream, 0)) }
}

type CreateGreenStream =
    unsafe extern "C-unwind" fn(*mut CUstream, CUgreenCtx, u32, i32) -> CUresult;

/// `cuGreenCtxStreamCreate`, in a context that need not be current
pub(crate) unsafe fn create_green_stream(
    call: &Call,
    real: CreateGreenStream,
    out: *mut CUstream,
    green_ctx: CUgreenCtx,
    flags: u32,
    priority: i32,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, green_ctx, flags, priority) };
    if !result.is_success() || out.is_null() {
        return call.refused(result, &New::in_context(ResourceKind::Stream, 0));
    }
    // SAFETY: the driver wrote to it.
    let stream = unsafe { out.read_unaligned() };
    state::insert(
        ResourceKind::Stream,
        stream.address(),
        0,
        0,
        Owner::context(contexts::number_of(green_ctx.0)),
    );
    result
}

type DestroyStream = unsafe extern "C-unwind" fn(CUstream) -> CUresult;

/// `cuStreamDestroy` and `_v2`
pub(crate) unsafe fn destroy_stream(
    call: &Call,
    real: DestroyStream,
    h_stream: CUstream,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    call.freed(&[ResourceKind::Stream], h_stream, || unsafe {
        real(h_stream)
    })
}

type CreateEvent = unsafe extern "C-unwind" fn(*mut CUevent, u32) -> CUresult;

/// `cuEventCreate`
pub(crate) unsafe fn create_event(
    call: &Call,
    real: CreateEvent,
    out: *mut CUevent,
    flags: u32,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, flags) };
    // SAFETY: the driver wrote to it.
    unsafe { call.created(result, out, New::in_context(ResourceKind::Event, 0)) }
}

type CreateEventFromEgl = unsafe extern "C-unwind" fn(*mut CUevent, *mut c_void, u32) -> CUresult;

/// `cuEventCreateFromEGLSync`
pub(crate) unsafe fn create_event_from_egl(
    call: &Call,
    real: CreateEventFromEgl,
    out: *mut CUevent,
    egl_sync: *mut c_void,
    flags: u32,
) -> CUresult {
    // SAFETY: as the caller guarantees.
    let result = unsafe { real(out, egl_sync, flags) };
    // SAFETY: the driver wrote to it.
    unsafe { call.created(result, out, New::in_context(ResourceKind::Event, 0)) }
}

type DestroyEvent = unsafe extern "C-unwind" fn(CUevent) -> CUresult;

/// `cuEventDestroy` and `_v2`
pub(crate) unsafe fn destroy_event(call: &Call, real: DestroyEvent, h_event: CUevent) -> CUresult {
    // SAFETY: as the caller guarantees.
    call.freed(&[ResourceKind::Event], h_event, || unsafe { real(h_event) })
}
