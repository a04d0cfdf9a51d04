//! The state of the process as one word, so that a hot path tests all of it with one load.

use std::sync::atomic::{AtomicU32, Ordering};

/// The process is exiting, or is a forked child: nothing calls the driver any more.
const EXITING: u32 = 1;
/// The process is a forked child: locks may be held by threads that do not exist in it.
const FORKED: u32 = 2;
/// Some free or teardown is deferred, because of a drop inside a host function.
const DEFERRED: u32 = 4;

static STATE: AtomicU32 = AtomicU32::new(0);

/// Whether the process neither exits nor is a forked child, and nothing is deferred.
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
#[inline]
pub fn is_forked() -> bool {
    STATE.load(Ordering::SeqCst) & FORKED != 0
}

/// The process exits: from now on nothing calls the driver.
///
/// # Safety
///
/// Only an exit handler may call this. Scopes end without waiting for the device once it is set, which is sound only
/// because the process ends.
pub unsafe fn begin_exit() {
    STATE.fetch_or(EXITING, Ordering::SeqCst);
}

/// This is a forked child: nothing calls the driver, and no lock is waited for.
///
/// # Safety
///
/// Only a handler that runs in a forked child may call this, for the same reason.
pub unsafe fn mark_forked() {
    STATE.fetch_or(FORKED | EXITING, Ordering::SeqCst);
}

/// Sets whether anything is deferred.
pub fn set_deferred(any: bool) {
    match any {
        true => STATE.fetch_or(DEFERRED, Ordering::SeqCst),
        false => STATE.fetch_and(!DEFERRED, Ordering::SeqCst),
    };
}
