//! Whether a thread is in a recorded call: calls inside of it are not recorded, and it may hold locks of the records.

use std::cell::Cell;

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Enters a recorded call. Returns whether the thread was outside of one.
#[inline]
pub(crate) fn enter() -> bool {
    !INSIDE.replace(true)
}

/// Leaves a recorded call.
#[inline]
pub(crate) fn leave() {
    INSIDE.set(false);
}

/// Whether the calling thread is in a recorded call.
pub(crate) fn is_inside() -> bool {
    INSIDE.get()
}
