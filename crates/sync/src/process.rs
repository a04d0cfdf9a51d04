//! The state of the process as one word, so that a hot path tests all of it with one load.

use std::sync::atomic::{AtomicU32, Ordering};

/// The process is exiting, or is a forked child: nothing calls the driver any more.
pub const EXITING: u32 = 1;
/// The process is a forked child: locks may be held by threads that do not exist in it.
pub const FORKED: u32 = 2;
/// Some resource waits to be freed, because it was dropped inside a host function.
pub const DEFERRED: u32 = 4;

static STATE: AtomicU32 = AtomicU32::new(0);

/// Whether none of the above holds.
#[inline]
pub fn is_ordinary() -> bool {
    STATE.load(Ordering::SeqCst) == 0
}

/// Whether the process is exiting, or is a forked child.
#[inline]
pub fn is_exiting() -> bool {
    STATE.load(Ordering::SeqCst) & EXITING != 0
}

/// Whether this is a forked child.
pub fn is_forked() -> bool {
    STATE.load(Ordering::SeqCst) & FORKED != 0
}

/// Sets flags.
pub fn set(flags: u32) {
    STATE.fetch_or(flags, Ordering::SeqCst);
}

/// Clears flags.
pub fn clear(flags: u32) {
    STATE.fetch_and(!flags, Ordering::SeqCst);
}
