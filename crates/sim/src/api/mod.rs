//! What the simulated functions do, one file a topic. Each is the driver function of its name;
//! [`crate::entry`] wraps it for C.
//!
//! The functions trust their callers as a driver does: pointers are valid for what the driver's
//! documentation says is read or written through them. That is what makes them `unsafe`. Null is
//! always answered with an error.

#![allow(
    non_snake_case,
    reason = "the functions keep the driver's names, so that its documentation applies"
)]

mod array;
mod context;
mod copy;
mod copy_2d;
mod device;
mod event;
mod fill;
mod host;
mod memory;
mod module;
mod pointer;
mod pooled;
mod primary;
mod start;
mod stream;
mod virtual_memory;

pub(crate) use array::*;
pub(crate) use context::*;
pub(crate) use copy::*;
pub(crate) use copy_2d::*;
pub(crate) use device::*;
pub(crate) use event::*;
pub(crate) use fill::*;
pub(crate) use host::*;
pub(crate) use memory::*;
pub(crate) use module::*;
pub(crate) use pointer::*;
pub(crate) use pooled::*;
pub(crate) use primary::*;
pub(crate) use start::*;
pub(crate) use stream::*;
pub(crate) use virtual_memory::*;

use cuguard_sys::CUresult;

use crate::machine::Answer;

/// Writes a result, which the caller must have asked for.
///
/// # Safety
///
/// `out` is null or valid for a write.
unsafe fn put<T>(out: *mut T, value: T) -> Answer {
    if out.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    // SAFETY: not null, so valid by the caller's promise. C callers need not align.
    unsafe { out.write_unaligned(value) };
    Ok(())
}

/// Writes a result, if the caller asked for it.
///
/// # Safety
///
/// `out` is null or valid for a write.
unsafe fn put_if_asked<T>(out: *mut T, value: T) {
    if !out.is_null() {
        // SAFETY: as in `put`.
        unsafe { out.write_unaligned(value) };
    }
}

/// Reads a parameter block.
///
/// # Safety
///
/// `from` is null or valid for a read.
unsafe fn get<T: Copy>(from: *const T) -> Result<T, CUresult> {
    if from.is_null() {
        return Err(CUresult::INVALID_VALUE);
    }
    // SAFETY: not null, so valid by the caller's promise.
    Ok(unsafe { from.read_unaligned() })
}

fn check(holds: bool, otherwise: CUresult) -> Answer {
    if holds { Ok(()) } else { Err(otherwise) }
}

/// Whether an argument is acceptable.
fn valid(holds: bool) -> Answer {
    check(holds, CUresult::INVALID_VALUE)
}
