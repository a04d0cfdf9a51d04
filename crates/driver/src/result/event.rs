//! Events.

use cuguard_sys::{CUevent, CUstream};

use super::{Result, call, out};

/// Creates an event in the current context, with the flags `EVENT_…` of [`flags`](cuguard_sys::flags).
///
/// # Errors
///
/// `CUDA_ERROR_OUT_OF_MEMORY`, `CUDA_ERROR_INVALID_VALUE`, or any other driver error.
#[inline]
pub fn create(flags: u32) -> Result<CUevent> {
    // SAFETY: the variable can be written to; the driver checks the flags.
    out(|event| unsafe { call!(cuEventCreate(event, flags)) })
}

/// Destroys an event. Does not wait for it.
///
/// # Errors
///
/// Any driver error.
///
/// # Safety
///
/// The event is alive and not used afterwards.
#[inline]
pub unsafe fn destroy(event: CUevent) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuEventDestroy_v2(event)) }
}

/// Records the event: it is complete when all earlier work on `stream` is.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_HANDLE` if event and stream belong to different contexts, or any other driver error.
///
/// # Safety
///
/// Event and stream are alive.
#[inline]
pub unsafe fn record(event: CUevent, stream: CUstream) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuEventRecord(event, stream)) }
}

/// Returns whether the event is complete; `false` is the driver's `CUDA_ERROR_NOT_READY`. An event that was
/// never recorded counts as complete.
///
/// # Errors
///
/// Any other driver error, also that of earlier asynchronous work.
///
/// # Safety
///
/// The event is alive.
#[inline]
pub unsafe fn query(event: CUevent) -> Result<bool> {
    // SAFETY: as the caller ensures.
    unsafe { call!(check_complete, cuEventQuery(event)) }
}

/// Waits until the event is complete.
///
/// # Errors
///
/// Any driver error, also that of earlier asynchronous work.
///
/// # Safety
///
/// The event is alive.
#[inline]
pub unsafe fn synchronize(event: CUevent) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuEventSynchronize(event)) }
}

/// Returns the milliseconds between two events.
///
/// # Errors
///
/// `CUDA_ERROR_NOT_READY` if one of them is not complete, `CUDA_ERROR_INVALID_HANDLE` if one was not recorded
/// or has no timing, or any other driver error.
///
/// # Safety
///
/// Both events are alive.
#[inline]
pub unsafe fn elapsed_time(start: CUevent, end: CUevent) -> Result<f32> {
    // SAFETY: the variable can be written to; the rest is as the caller ensures.
    out(|milliseconds| unsafe { call!(cuEventElapsedTime(milliseconds, start, end)) })
}
