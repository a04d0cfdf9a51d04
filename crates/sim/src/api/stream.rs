//! Streams, and host functions on them.

use std::ffi::c_void;

use cuguard_sys::{CUcontext, CUhostFn, CUresult, CUstream, CUstreamCallback, flags};

use super::context::clamp_priority;
use super::{check, put, valid};
use crate::handle::{self, Kind};
use crate::lock::lock;
use crate::machine::Answer;
use crate::queue::{HostCall, Role, Stream};
use crate::wait::synchronize_stream;

pub(crate) unsafe fn cuStreamCreate(out: *mut CUstream, flags: u32) -> Answer {
    // SAFETY: as the caller promises.
    unsafe { cuStreamCreateWithPriority(out, flags, 0) }
}

pub(crate) unsafe fn cuStreamCreateWithPriority(
    out: *mut CUstream,
    flags: u32,
    priority: i32,
) -> Answer {
    valid(!out.is_null() && flags & !flags::STREAM_NON_BLOCKING == 0)?;
    let mut machine = lock();
    let context = machine.current()?;
    let priority = clamp_priority(priority);
    let id = machine.add_stream(Stream::new(context, Role::Created, flags, priority));
    // SAFETY: as the caller promises.
    unsafe { put(out, CUstream(handle::encode(Kind::Stream, id))) }
}

pub(crate) unsafe fn cuStreamGetPriority(stream: CUstream, priority: *mut i32) -> Answer {
    let mut machine = lock();
    let id = machine.stream(stream)?;
    // SAFETY: as the caller promises.
    unsafe { put(priority, machine.streams[&id].priority) }
}

pub(crate) unsafe fn cuStreamGetFlags(stream: CUstream, flags: *mut u32) -> Answer {
    let mut machine = lock();
    let id = machine.stream(stream)?;
    // SAFETY: as the caller promises.
    unsafe { put(flags, machine.streams[&id].flags) }
}

pub(crate) unsafe fn cuStreamGetCtx(stream: CUstream, out: *mut CUcontext) -> Answer {
    let mut machine = lock();
    let id = machine.stream(stream)?;
    let context = machine.streams[&id].context;
    // SAFETY: as the caller promises.
    unsafe { put(out, CUcontext(handle::encode(Kind::Context, context))) }
}

pub(crate) unsafe fn cuStreamIsCapturing(stream: CUstream, status: *mut u32) -> Answer {
    lock().stream(stream)?;
    // SAFETY: as the caller promises.
    unsafe { put(status, 0) }
}

pub(crate) unsafe fn cuStreamQuery(stream: CUstream) -> Answer {
    let mut machine = lock();
    let id = machine.stream(stream)?;
    check(machine.is_stream_idle(id), CUresult::NOT_READY)
}

pub(crate) unsafe fn cuStreamSynchronize(stream: CUstream) -> Answer {
    let mut machine = lock();
    let id = machine.stream(stream)?;
    drop(synchronize_stream(machine, id));
    Ok(())
}

/// Returns at once; work that the stream still has is done all the same.
pub(crate) unsafe fn cuStreamDestroy_v2(stream: CUstream) -> Answer {
    let by_name = [CUstream::NULL, CUstream::LEGACY, CUstream::PER_THREAD];
    check(!by_name.contains(&stream), CUresult::INVALID_HANDLE)?;
    let mut machine = lock();
    let id = machine.stream(stream)?;
    machine.destroy_stream(id);
    Ok(())
}

pub(crate) unsafe fn cuLaunchHostFunc(
    stream: CUstream,
    function: Option<CUhostFn>,
    user_data: *mut c_void,
) -> Answer {
    let function = function.ok_or(CUresult::INVALID_VALUE)?;
    let mut machine = lock();
    let id = machine.stream(stream)?;
    // SAFETY: the program gave the function together with what it is to be called with.
    let call = HostCall(move || unsafe { function(user_data) });
    let run = Box::new(move || call.run());
    machine.submit(id, None, Some(run), None).map(drop)
}

pub(crate) unsafe fn cuStreamAddCallback(
    stream: CUstream,
    callback: Option<CUstreamCallback>,
    user_data: *mut c_void,
    flags: u32,
) -> Answer {
    let callback = callback.ok_or(CUresult::INVALID_VALUE)?;
    valid(flags == 0)?;
    let mut machine = lock();
    let id = machine.stream(stream)?;
    // SAFETY: the program gave the function together with what it is to be called with.
    let call = HostCall(move || unsafe { callback(stream, CUresult::SUCCESS, user_data) });
    let run = Box::new(move || call.run());
    machine.submit(id, None, Some(run), None).map(drop)
}
