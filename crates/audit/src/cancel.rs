//! This library's work is not cancelled.
//!
//! `pthread_cancel` unwinds the stack of a thread at the next cancellation point, such as `open` or `write`, or, with asynchronous
//! cancellation, at any instruction. Frames of Rust with destructors, or that catch panics, do not survive that, and a record
//! would be half made. So each function that the program calls disables cancellation first, and restores it last, in a frame
//! that has no destructors: a thread that restores asynchronous cancellation may be cancelled there.
//!
//! Disabled is not enough for a thread with asynchronous cancellation: `pthread_cancel` sends it a signal, and if cancellation is
//! disabled before the signal arrives, the C library's handler looks at the type alone and unwinds. So the type is deferred, too.
//!
//! The driver's functions run with cancellation disabled, too: one that was cancelled after it has allocated would leave
//! what nobody knows of. They are no cancellation points by their documentation. Those that wait for the device have the
//! program's own state: they create nothing, and a program may cancel a thread that waits.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

const DISABLE: c_int = 1;
const DEFERRED: c_int = 0;
const ASYNCHRONOUS_TYPE: c_int = 1;
/// Nothing was changed.
const UNCHANGED: c_int = -1;
/// Of what [`disable`] returns: the type was asynchronous. The other bit is the state.
const ASYNCHRONOUS: c_int = 2;

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

/// Disables cancellation of the calling thread. Returns what it was, for [`restore`]. Async-signal-safe. Unwinds if the thread is
/// cancelled asynchronously before it is disabled.
#[inline]
pub(crate) fn disable() -> c_int {
    let (mut state, mut kind) = (UNCHANGED, DEFERRED);
    // SAFETY: numbers can be written to.
    unsafe {
        pthread_setcancelstate(DISABLE, &mut state);
        pthread_setcanceltype(DEFERRED, &mut kind);
    }
    if kind == DEFERRED {
        state
    } else {
        state | ASYNCHRONOUS
    }
}

/// [`disable`] in functions that a child of `vfork` may call: it has its parent's thread, and may not return to where the state is
/// restored.
pub(crate) extern "C-unwind" fn disable_unless_shared() -> c_int {
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
    let mut unused = 0;
    // A thread that is cancelled by `pthread_setcancelstate` does not have the result `PTHREAD_CANCELED`, in some versions of the C
    // library. So asynchronous cancellation is restored last, by the other function.
    // SAFETY: a number can be written to.
    unsafe {
        pthread_setcancelstate(before & DISABLE, &mut unused);
        if before & ASYNCHRONOUS != 0 {
            pthread_setcanceltype(ASYNCHRONOUS_TYPE, &mut unused);
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
