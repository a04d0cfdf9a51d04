//! The child after `fork`: it starts without records. The driver does not work in it, unless the parent has not used it.

use std::sync::atomic::Ordering;

use super::{STATE, UNUSED, reporter, start};

/// Runs in the child, whose only thread is the one that forked. Other threads may have held any lock.
pub(super) extern "C" fn in_child() {
    start::own();
    reporter::forget();
    STATE.store(UNUSED, Ordering::Release);
}
