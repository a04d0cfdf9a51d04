//! The state of the process as one word, so that a hot path tests all of it with one load.

use std::sync::atomic::{AtomicU32, Ordering};

/// The process is exiting, or is a forked child: nothing calls the driver any more.
pub(crate) const EXITING: u32 = 1;
/// The process is a forked child: locks may be held by threads that do not exist in it.
pub(crate) const FORKED: u32 = 2;
/// Some resource waits to be freed, because it was dropped inside a host function.
pub(crate) const DEFERRED: u32 = 4;

static STATE: AtomicU32 = AtomicU32::new(0);

/// Whether none of the above holds.
#[inline]
pub(crate) fn is_ordinary() -> bool {
    STATE.load(Ordering::SeqCst) == 0
}

/// Whether the process is exiting, or is a forked child.
#[inline]
pub(crate) fn is_exiting() -> bool {
    STATE.load(Ordering::SeqCst) & EXITING != 0
}

/// Whether this is a forked child.
pub(crate) fn is_forked() -> bool {
    STATE.load(Ordering::SeqCst) & FORKED != 0
}

pub(crate) fn set(flags: u32) {
    STATE.fetch_or(flags, Ordering::SeqCst);
}

pub(crate) fn clear(flags: u32) {
    STATE.fetch_and(!flags, Ordering::SeqCst);
}
