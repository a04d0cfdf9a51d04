//! Contexts: creation, the calling thread's stack of contexts, and what a context governs.
//!
//! Functions without a context among their arguments act on the calling thread's current one and fail with
//! `CUDA_ERROR_INVALID_CONTEXT` if there is none.

use cuguard_sys::{CUcontext, CUdevice};

use super::{Result, call, out};

/// Creates a context on `device` and pushes it onto the calling thread's stack.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_DEVICE`, `CUDA_ERROR_OUT_OF_MEMORY`, or any other driver error.
#[inline]
pub fn create(flags: u32, device: CUdevice) -> Result<CUcontext> {
    // SAFETY: the variable can be written to; the driver checks flags and device.
    out(|context| unsafe { call!(cuCtxCreate_v2(context, flags, device)) })
}

/// Destroys a context that [`create`] returned, with everything allocated in it.
///
/// # Errors
///
/// Any driver error.
///
/// # Safety
///
/// The context is alive, and nothing that belongs to it is used afterwards.
#[inline]
pub unsafe fn destroy(context: CUcontext) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuCtxDestroy_v2(context)) }
}

/// Pushes `context` onto the calling thread's stack: it is the current one until it is popped.
///
/// # Errors
///
/// Any driver error; the stack is unchanged then.
///
/// # Safety
///
/// The context is alive.
#[inline]
pub unsafe fn push_current(context: CUcontext) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuCtxPushCurrent_v2(context)) }
}

/// Pops the current context off the calling thread's stack and returns it.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_CONTEXT` if the stack is empty, or any other driver error.
#[inline]
pub fn pop_current() -> Result<CUcontext> {
    // SAFETY: the variable can be written to.
    out(|popped| unsafe { call!(cuCtxPopCurrent_v2(popped)) })
}

/// Returns the calling thread's current context, or `None` if there is none.
///
/// # Errors
///
/// `CUDA_ERROR_NOT_PERMITTED` inside a stream's host function, or any other driver error.
#[inline]
pub fn current() -> Result<Option<CUcontext>> {
    // SAFETY: the variable can be written to.
    let current: CUcontext = out(|current| unsafe { call!(cuCtxGetCurrent(current)) })?;
    Ok((!current.is_null()).then_some(current))
}

/// Returns the device of the current context.
///
/// # Errors
///
/// Any driver error.
#[inline]
pub fn device() -> Result<CUdevice> {
    // SAFETY: the variable can be written to.
    out(|device| unsafe { call!(cuCtxGetDevice(device)) })
}

/// Waits until all work of the current context is complete.
///
/// # Errors
///
/// Any driver error, also that of earlier asynchronous work.
#[inline]
pub fn synchronize() -> Result {
    // SAFETY: takes no arguments.
    unsafe { call!(cuCtxSynchronize()) }
}

/// Returns the version of the API that a context was created with. Does not need the context to be current.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_CONTEXT` if the context was destroyed, or any other driver error.
///
/// # Safety
///
/// The handle is of a context, which may be destroyed.
#[inline]
pub unsafe fn api_version(context: CUcontext) -> Result<u32> {
    // SAFETY: as the caller guarantees; the variable can be written to.
    out(|version| unsafe { call!(cuCtxGetApiVersion(context, version)) })
}

/// Returns a limit of the current context; `limit` is a constant of [`limit`](cuguard_sys::limit).
///
/// # Errors
///
/// `CUDA_ERROR_UNSUPPORTED_LIMIT`, or any other driver error.
#[inline]
pub fn limit(limit: u32) -> Result<usize> {
    // SAFETY: the variable can be written to; the driver checks the number of the limit.
    out(|value| unsafe { call!(cuCtxGetLimit(value, limit)) })
}

/// Sets a limit of the current context; the driver may round the value up.
///
/// # Errors
///
/// `CUDA_ERROR_UNSUPPORTED_LIMIT`, `CUDA_ERROR_OUT_OF_MEMORY`, or any other driver error.
#[inline]
pub fn set_limit(limit: u32, value: usize) -> Result {
    // SAFETY: the driver checks the number of the limit and the value.
    unsafe { call!(cuCtxSetLimit(limit, value)) }
}

/// Profilers record from now on.
///
/// # Errors
///
/// Any driver error.
#[inline]
pub fn profiler_start() -> Result {
    // SAFETY: takes no arguments.
    unsafe { call!(cuProfilerStart()) }
}

/// Profilers record until now.
///
/// # Errors
///
/// Any driver error.
#[inline]
pub fn profiler_stop() -> Result {
    // SAFETY: takes no arguments.
    unsafe { call!(cuProfilerStop()) }
}

/// The priorities that streams of a context can have. Lower numbers are served first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamPriorities {
    /// The numerically largest priority: served last.
    pub least: i32,
    /// The numerically smallest priority: served first.
    pub greatest: i32,
}

/// Returns the priorities that streams of the current context can have.
///
/// # Errors
///
/// Any driver error.
#[inline]
pub fn stream_priority_range() -> Result<StreamPriorities> {
    let mut range = StreamPriorities::default();
    // SAFETY: both variables can be written to.
    unsafe {
        call!(cuCtxGetStreamPriorityRange(
            &mut range.least,
            &mut range.greatest
        ))?
    };
    Ok(range)
}
