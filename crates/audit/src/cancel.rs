//! This library's work is not cancelled.
//!
//! `pthread_cancel` unwinds the stack of a thread at the next cancellation point, such as `open` or `write`, or, with asynchronous
//! cancellation, at any instruction. Frames of Rust with destructors, or that catch panics, do not survive that, and a record
//! would be half made. So each function that the program calls disables cancellation first, and restores it last, in a frame
//! that has no destructors: a thread that restores asynchronous cancellation may be cancelled there.
//!
//! The driver's functions run with cancellation disabled, too: one that was cancelled after it has allocated would leave what
//! nobody knows of. They are no cancellation points by their documentation. Those that wait for the device have the program's own state: they create nothing, and a program may
//! cancel a thread that waits.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

const DISABLE: c_int = 1;
const DEFERRED: c_int = 0;
/// The state was not changed.
const UNCHANGED: c_int = -1;

unsafe extern "C-unwind" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
    /// Unwinds if the thread is cancelled asynchronously.
    fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int;
}

/// The process that this memory belongs to.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// This process owns the memory from now on.
pub(crate) fn own(process: i32) {
    PROCESS.store(process, Ordering::Relaxed);
}

/// Disables cancellation of the calling thread. Returns the state for [`restore`]. Async-signal-safe.
#[inline]
pub(crate) fn disable() -> c_int {
    let mut before = UNCHANGED;
    // SAFETY: a number can be written to. Does not unwind: cancellation is not enabled.
    unsafe { pthread_setcancelstate(DISABLE, &mut before) };
    before
}

/// [`disable`] in functions that a child of `vfork` may call: it has its parent's thread, and may not return to where the state is
/// restored.
pub(crate) extern "C" fn disable_unless_shared() -> c_int {
    // SAFETY: always succeeds.
    match PROCESS.load(Ordering::Relaxed) == unsafe { libc::getpid() } {
        true => disable(),
        false => UNCHANGED,
    }
}

/// Restores the program's state. Unwinds if the thread is cancelled asynchronously.
#[inline]
pub(crate) extern "C-unwind" fn restore(before: c_int) {
    if before < 0 || before == DISABLE {
        return;
    }
    let (mut kind, mut unused) = (DEFERRED, 0);
    // A thread that is cancelled by `pthread_setcancelstate` does not have the result `PTHREAD_CANCELED`, in some versions of the C
    // library. So asynchronous cancellation is restored by the other function.
    // SAFETY: numbers can be written to.
    unsafe {
        pthread_setcanceltype(DEFERRED, &mut kind);
        pthread_setcancelstate(before, &mut unused);
        if kind != DEFERRED {
            pthread_setcanceltype(kind, &mut unused);
        }
    }
}

/// Calls a function with the program's state. It has no destructors, and neither has this function.
#[inline(never)]
pub(crate) fn with<R>(before: c_int, function: impl FnOnce() -> R + Copy) -> R {
    restore(before);
    let result = function();
    disable();
    result
}
