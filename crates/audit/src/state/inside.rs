//! Whether a thread is in a recorded call: it may hold locks of the records, and calls inside of the call are not recorded.

use std::cell::Cell;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Begins a call. `false` if the thread is in one.
#[inline]
pub(crate) fn enter() -> bool {
    !INSIDE.replace(true)
}

/// Ends it.
#[inline]
pub(crate) fn leave() {
    INSIDE.set(false);
}

/// Whether the calling thread is in a call. Async-signal-safe.
pub(crate) fn is_inside() -> bool {
    INSIDE.get()
}
