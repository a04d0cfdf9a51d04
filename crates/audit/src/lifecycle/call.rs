//! Whether the calling thread is in a recorded call.

use std::cell::Cell;

thread_local! {
    /// Whether the calling thread is in a recorded call, and may hold locks of the records.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// A call begins. Returns whether the thread was in another one.
#[inline]
pub(super) fn enter() -> bool {
    INSIDE.replace(true)
}

/// The call ends.
#[inline]
pub(super) fn leave() {
    INSIDE.set(false);
}

/// Whether the calling thread is in a recorded call.
#[inline]
pub(super) fn is_inside() -> bool {
    INSIDE.get()
}
