//! Streams. The null handle is the legacy default stream of the current context.

use std::ffi::c_void;

use cuguard_sys::{CUcontext, CUevent, CUgraph, CUhostFn, CUstream, stream_capture_status};

use super::{Result, call, out};

/// Creates a stream in the current context; `flags` is
/// [`STREAM_NON_BLOCKING`](cuguard_sys::flags::STREAM_NON_BLOCKING) or 0.
///
/// The driver moves a priority outside
/// [`stream_priority_range`](super::context::stream_priority_range) to the nearest one inside.
///
/// # Errors
///
/// `CUDA_ERROR_OUT_OF_MEMORY`, `CUDA_ERROR_INVALID_VALUE`, or any other driver error.
#[inline]
pub fn create_with_priority(flags: u32, priority: i32) -> Result<CUstream> {
    // SAFETY: the variable can be written to; the driver checks flags and priority.
    out(|stream| unsafe { call!(cuStreamCreateWithPriority(stream, flags, priority)) })
}

/// Destroys a stream. Does not wait; work that is on it still completes.
///
/// # Errors
///
/// Any driver error.
///
/// # Safety
///
/// The stream is alive, not a default stream, and not used afterwards.
#[inline]
pub unsafe fn destroy(stream: CUstream) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuStreamDestroy_v2(stream)) }
}

/// Returns the stream's priority.
///
/// # Errors
///
/// Any driver error.
///
/// # Safety
///
/// The stream is alive.
#[inline]
pub unsafe fn priority(stream: CUstream) -> Result<i32> {
    // SAFETY: the variable can be written to; the rest is as the caller ensures.
    out(|priority| unsafe { call!(cuStreamGetPriority(stream, priority)) })
}

/// Returns the stream's context.
///
/// # Errors
///
/// Any driver error.
///
/// # Safety
///
/// The stream is alive.
#[inline]
pub unsafe fn context(stream: CUstream) -> Result<CUcontext> {
    // SAFETY: the variable can be written to; the rest is as the caller ensures.
    out(|context| unsafe { call!(cuStreamGetCtx(stream, context)) })
}

/// Waits until all work on the stream is complete.
///
/// # Errors
///
/// Any driver error, also that of the work.
///
/// # Safety
///
/// The stream is alive.
#[inline]
pub unsafe fn synchronize(stream: CUstream) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuStreamSynchronize(stream)) }
}

/// Returns whether all work on the stream is complete; `false` is the driver's `CUDA_ERROR_NOT_READY`.
///
/// # Errors
///
/// Any other driver error, also that of the work.
///
/// # Safety
///
/// The stream is alive.
#[inline]
pub unsafe fn query(stream: CUstream) -> Result<bool> {
    // SAFETY: as the caller ensures.
    unsafe { call!(check_complete, cuStreamQuery(stream)) }
}

/// Makes later work on the stream wait until `event` is complete. The host does not wait.
///
/// # Errors
///
/// Any driver error.
///
/// # Safety
///
/// Stream and event are alive.
#[inline]
pub unsafe fn wait_event(stream: CUstream, event: CUevent) -> Result {
    // SAFETY: as the caller ensures; there are no flags.
    unsafe { call!(cuStreamWaitEvent(stream, event, 0)) }
}

/// Enqueues a call of `function` with `argument` on a thread of the driver, where no CUDA call is permitted. On a
/// capturing stream, it becomes a node of the graph.
///
/// # Errors
///
/// Any driver error.
///
/// # Safety
///
/// The stream is alive. The function can be called with the argument, on another thread, each time that the work
/// executes, and returns.
#[inline]
pub unsafe fn launch_host_func(
    stream: CUstream,
    function: CUhostFn,
    argument: *mut c_void,
) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuLaunchHostFunc(stream, Some(function), argument)) }
}

/// Begins a capture: until it ends, work that is enqueued on the stream becomes nodes of a graph. `mode` is a value of
/// [`stream_capture_mode`](cuguard_sys::stream_capture_mode).
///
/// # Errors
///
/// `CUDA_ERROR_ILLEGAL_STATE` if the stream captures already; `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED` for the legacy
/// default stream; or any other driver error.
///
/// # Safety
///
/// The stream is alive.
#[inline]
pub unsafe fn begin_capture(stream: CUstream, mode: u32) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuStreamBeginCapture_v2(stream, mode)) }
}

/// Whether work that is enqueued on the stream becomes nodes of a graph; also where the capture is invalid and has not
/// ended.
///
/// # Errors
///
/// `CUDA_ERROR_STREAM_CAPTURE_IMPLICIT` for the legacy default stream while a blocking stream captures, or any other
/// driver error.
///
/// # Safety
///
/// The stream is alive.
#[inline]
pub unsafe fn is_capturing(stream: CUstream) -> Result<bool> {
    // SAFETY: the variable can be written to; the rest is as the caller ensures.
    let status = out(|status| unsafe { call!(cuStreamIsCapturing(stream, status)) })?;
    Ok(status != stream_capture_status::NONE)
}

/// Ends a capture and returns its graph, which the caller must destroy.
///
/// # Errors
///
/// `CUDA_ERROR_STREAM_CAPTURE_INVALIDATED` if a call made the capture invalid, which has ended then; or any other driver
/// error.
///
/// # Safety
///
/// The stream is alive.
#[inline]
pub unsafe fn end_capture(stream: CUstream) -> Result<CUgraph> {
    // SAFETY: the variable can be written to; the rest is as the caller ensures.
    out(|graph| unsafe { call!(cuStreamEndCapture(stream, graph)) })
}

/// Sets which calls of this thread the captures of streams prohibit, a value of
/// [`stream_capture_mode`](cuguard_sys::stream_capture_mode), and returns what was set before.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE`; `CUDA_ERROR_NOT_FOUND` from a driver older than CUDA 10.1.
#[inline]
pub fn exchange_capture_mode(mut mode: u32) -> Result<u32> {
    // SAFETY: the variable can be read and written to.
    unsafe { call!(cuThreadExchangeStreamCaptureMode(&mut mode)) }?;
    Ok(mode)
}
