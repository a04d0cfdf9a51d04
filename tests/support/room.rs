//! Memory by the gigabyte, and too little of it: for tests of what happens when it runs out.

#![allow(dead_code, reason = "each test file uses a part of it")]

use cuguard::{Context, DeviceBuffer, Error, Result, Stream};

use cuguard::oom::OutOfMemory;

pub const MIB: usize = 1 << 20;
pub const GIB: usize = 1 << 30;
pub const PAGE: u64 = 2 << 20;

/// The report of an allocation that must fail.
#[track_caller]
pub fn why<T: std::fmt::Debug>(result: Result<T>) -> OutOfMemory {
    match result {
        Err(Error::OutOfMemory(why)) => *why,
        other => panic!("not out of memory: {other:?}"),
    }
}

/// Memory that nobody reads. The simulated GPU's is the host's, and takes long to clear.
#[track_caller]
pub fn take(context: &Context, bytes: usize) -> Result<DeviceBuffer<u8>> {
    // SAFETY: nobody reads it.
    unsafe { DeviceBuffer::uninitialized(context, bytes) }
}

/// The same on a stream.
#[track_caller]
pub fn take_on(stream: &Stream, bytes: usize) -> Result<DeviceBuffer<u8>> {
    // SAFETY: nobody reads it.
    unsafe { DeviceBuffer::uninitialized_on(stream, bytes) }
}

/// Takes all but so much of what is free.
pub fn leave(context: &Context, bytes: usize) -> Result<DeviceBuffer<u8>> {
    let free = context.memory()?.free as usize;
    take(context, (free - bytes) & !(2 * MIB - 1))
}
