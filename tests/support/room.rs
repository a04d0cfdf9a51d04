//! Large allocations, for tests of out-of-memory errors.

#![allow(dead_code, reason = "each test file uses a part of it")]

use cuguard::{Context, DeviceBuffer, Error, Result, Stream};

use cuguard::oom::OutOfMemory;

pub const MIB: usize = 1 << 20;
pub const GIB: usize = 1 << 30;
pub const PAGE: u64 = 2 << 20;

/// The diagnosis of an allocation that must fail.
#[track_caller]
pub fn why<T: std::fmt::Debug>(result: Result<T>) -> OutOfMemory {
    match result {
        Err(Error::OutOfMemory(why)) => *why,
        other => panic!("not out of memory: {other:?}"),
    }
}

/// Uninitialized memory: zeroing the memory of the simulated GPU takes long.
#[track_caller]
pub fn take(context: &Context, bytes: usize) -> Result<DeviceBuffer<u8>> {
    // SAFETY: nobody reads it.
    unsafe { DeviceBuffer::uninitialized(context, bytes) }
}

/// The same on a stream.
#[track_caller]
pub fn take_on(stream: &Stream, bytes: usize) -> Result<DeviceBuffer<u8>> {
    // SAFETY: nobody reads it.
    unsafe { DeviceBuffer::uninitialized(stream, bytes) }
}

/// Allocates all free memory but `bytes`.
#[track_caller]
pub fn leave(context: &Context, bytes: usize) -> Result<DeviceBuffer<u8>> {
    let memory = context.memory()?;
    let Some(rest) = (memory.free as usize).checked_sub(bytes) else {
        let (free, total) = (memory.free as usize / MIB, memory.total as usize / MIB);
        panic!(
            "the test needs {} MiB, and {free} of {total} MiB are free: other processes hold them, or a test before",
            bytes / MIB
        );
    };
    take(context, rest & !(2 * MIB - 1))
}
