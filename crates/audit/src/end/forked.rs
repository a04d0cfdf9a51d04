//! The child after `fork`: it starts without records.
//!
//! If the parent has not used the driver, neither has the child, and it starts anew. Otherwise the driver fails in the child
//! (`CUDA_ERROR_NOT_INITIALIZED`): nothing is recorded there, and no lock is waited for.

use std::sync::atomic::Ordering;

use super::{FORKED, STATE, UNUSED, reporter, start};

/// Runs in the child, whose only thread is the one that forked. Other threads may have held any lock.
pub(super) extern "C" fn in_child() {
    start::own();
    reporter::forget();
    if STATE.load(Ordering::Acquire) != UNUSED {
        STATE.store(FORKED, Ordering::Release);
    }
}
