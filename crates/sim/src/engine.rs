//! The engines that copy and fill. They stop for good where a real device stops: when it is broken,
//! and when a fault has every call fail from some call on. A driver in that state tells nobody when
//! work is done, so nothing may be under way any more.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

static STOPPED: AtomicBool = AtomicBool::new(false);
/// Held for reading by work that is under way.
static UNDER_WAY: RwLock<()> = RwLock::new(());

/// Does a piece of work that touches memory, unless the engines have stopped.
pub(crate) fn run(work: impl FnOnce()) {
    let under_way = UNDER_WAY.read().unwrap_or_else(PoisonError::into_inner);
    if !STOPPED.load(Ordering::Acquire) {
        work();
    }
    drop(under_way);
}

/// Stops the engines. When this returns, nothing touches memory any more.
pub(crate) fn stop() {
    STOPPED.store(true, Ordering::Release);
    drop(UNDER_WAY.write().unwrap_or_else(PoisonError::into_inner));
}

/// Lets them work again: the fault that stopped them was cleared.
pub(crate) fn start_again() {
    STOPPED.store(false, Ordering::Release);
}
