//! Whether this process is a forked child of the one that records.

use std::sync::atomic::{AtomicBool, Ordering};

/// Set by the handler of this crate: others may run later, and programs without a context have none.
static FORKED: AtomicBool = AtomicBool::new(false);

/// This is a forked child.
pub(crate) fn mark() {
    FORKED.store(true, Ordering::Release);
}

/// Whether this is a forked child: locks may be held by threads that do not exist in it.
pub(crate) fn is_forked() -> bool {
    FORKED.load(Ordering::Acquire)
}
