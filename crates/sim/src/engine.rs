//! The engines that copy and fill. They stop for good where a real device stops: when it is broken,
//! and when a fault has every call fail from some call on. A driver in that state tells nobody when
//! work is done, so nothing may be under way any more.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{PoisonError, RwLock};

use cuguard_sys::CUresult;

/// Why they stopped; success while they work.
static STOPPED: AtomicU32 = AtomicU32::new(CUresult::SUCCESS.0);
/// Held for reading by work that is under way.
static UNDER_WAY: RwLock<()> = RwLock::new(());

/// Does a piece of work that touches memory, unless the engines have stopped.
pub(crate) fn run(work: impl FnOnce()) {
    let under_way = UNDER_WAY.read().unwrap_or_else(PoisonError::into_inner);
    if stopped().is_success() {
        work();
    }
    drop(under_way);
}

/// Why the engines stopped: work that was given to them has not happened, and who waits for it must
/// not be told that it has. Success while they work.
pub(crate) fn stopped() -> CUresult {
    CUresult(STOPPED.load(Ordering::Acquire))
}

/// Stops the engines. When this returns, nothing touches memory any more.
pub(crate) fn stop(code: CUresult) {
    STOPPED.store(code.0, Ordering::Release);
    drop(UNDER_WAY.write().unwrap_or_else(PoisonError::into_inner));
}

/// Lets them work again: the fault that stopped them was cleared.
pub(crate) fn start_again() {
    STOPPED.store(CUresult::SUCCESS.0, Ordering::Release);
}
