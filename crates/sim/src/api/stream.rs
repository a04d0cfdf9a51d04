//! Streams and host functions.

use std::ffi::c_void;

use cuguard_sys::{CUcontext, CUhostFn, CUresult, CUstream, CUstreamCallback, flags};

use super::context::clamp_priority;
use super::{begin_work, write_out};
use crate::graph::{HostFunction, NodeParams};
use crate::handle::{self, Id, Kind};
use crate::result::{DriverResult, check, valid};
use crate::state::{DriverState, lock, synchronize_stream};
use crate::streams::{Run, Stream};
use crate::thread_state;

pub unsafe fn cuStreamCreate(out: *mut CUstream, flags: u32) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe { cuStreamCreateWithPriority(out, flags, 0) }
}

pub unsafe fn cuStreamCreateWithPriority(
    out: *mut CUstream,
    flags: u32,
    priority: i32,
) -> DriverResult {
    valid(!out.is_null() && flags & !flags::STREAM_NON_BLOCKING == 0)?;
    let mut state = lock();
    let stream = Stream {
        context: state.current()?,
        flags,
        priority: clamp_priority(priority),
        ..Stream::default()
    };
    let id = state.add_stream(stream);
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, CUstream(handle::encode(Kind::Stream, id))) }
}

/// Writes a property of a stream.
///
/// # Safety
///
/// `out` is null or valid for a write.
unsafe fn get<T>(stream: CUstream, out: *mut T, property: impl Fn(&Stream) -> T) -> DriverResult {
    let mut state = lock();
    let id = state.stream(stream)?;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, property(&state.streams[&id])) }
}

pub unsafe fn cuStreamGetPriority(stream: CUstream, out: *mut i32) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe { get(stream, out, |stream| stream.priority) }
}

pub unsafe fn cuStreamGetFlags(stream: CUstream, out: *mut u32) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe { get(stream, out, |stream| stream.flags) }
}

pub unsafe fn cuStreamGetCtx(stream: CUstream, out: *mut CUcontext) -> DriverResult {
    let context = |stream: &Stream| CUcontext(handle::encode(Kind::Context, stream.context));
    // SAFETY: as the caller guarantees.
    unsafe { get(stream, out, context) }
}

/// Fails if a capture does not permit to wait for a stream.
fn check_can_wait(state: &mut DriverState, stream: Id) -> DriverResult {
    state.check_not_capturing(stream)?;
    state.check_implicit(stream)?;
    state.check_unsafe_call()
}

pub unsafe fn cuStreamQuery(stream: CUstream) -> DriverResult {
    let mut state = lock();
    let id = state.stream(stream)?;
    check_can_wait(&mut state, id)?;
    check(state.is_stream_idle(id), CUresult::NOT_READY)
}

pub unsafe fn cuStreamSynchronize(stream: CUstream) -> DriverResult {
    let mut state = lock();
    let id = state.stream(stream)?;
    check_can_wait(&mut state, id)?;
    drop(synchronize_stream(state, id));
    Ok(())
}

/// Returns at once; work that was submitted to the stream still executes.
pub unsafe fn cuStreamDestroy_v2(stream: CUstream) -> DriverResult {
    let predefined = [CUstream::NULL, CUstream::LEGACY, CUstream::PER_THREAD];
    check(!predefined.contains(&stream), CUresult::INVALID_HANDLE)?;
    let mut state = lock();
    let id = state.stream(stream)?;
    state.destroy_capturing(id);
    state.destroy_stream(id);
    Ok(())
}

/// A host function with its argument.
struct HostCall<F: FnOnce()>(F);

// SAFETY: the program passed function and argument to be called on a thread of the driver, which is
// the contract of `cuLaunchHostFunc` and `cuStreamAddCallback`.
unsafe impl<F: FnOnce()> Send for HostCall<F> {}

impl<F: FnOnce() + 'static> HostCall<F> {
    fn work(self) -> Run {
        Box::new(move || self.run())
    }

    fn run(self) {
        thread_state::run_host_function(self.0);
    }
}

/// The work of a host function.
pub(super) fn host_work(HostFunction { function, data }: HostFunction) -> Run {
    // SAFETY: the program passed the function with the argument to call it with.
    HostCall(move || unsafe { function(data) }).work()
}

pub unsafe fn cuLaunchHostFunc(
    stream: CUstream,
    function: Option<CUhostFn>,
    user_data: *mut c_void,
) -> DriverResult {
    let function = function.ok_or(CUresult::INVALID_VALUE)?;
    let host = HostFunction {
        function,
        data: user_data,
    };
    let (mut state, id) = begin_work(stream)?;
    if state.is_capturing(id) {
        return state.capture(id, NodeParams::Host(host));
    }
    let run = host_work(host);
    state.submit(id, None, Some(run), None).map(drop)
}

pub unsafe fn cuStreamAddCallback(
    stream: CUstream,
    callback: Option<CUstreamCallback>,
    user_data: *mut c_void,
    flags: u32,
) -> DriverResult {
    let callback = callback.ok_or(CUresult::INVALID_VALUE)?;
    valid(flags == 0)?;
    let (mut state, id) = begin_work(stream)?;
    state.check_not_capturing(id)?;
    // SAFETY: the program passed the function with the argument to call it with.
    let call = HostCall(move || unsafe { callback(stream, CUresult::SUCCESS, user_data) });
    state.submit(id, None, Some(call.work()), None).map(drop)
}
