//! The engines, which execute copies, fills and kernels.
//!
//! They stop where a real device stops: after a sticky error, and when a fault makes every call
//! fail. A driver in that state cannot report that work is complete, so no work may execute any
//! more.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use cuguard_sys::CUresult;

use crate::result::DriverResult;

/// Why the engines stopped; `CUDA_SUCCESS` while they run.
static STOPPED: AtomicU32 = AtomicU32::new(CUresult::SUCCESS.0);
/// The code of [`set_sticky_error`]; `CUDA_SUCCESS` for none.
static STICKY: AtomicU32 = AtomicU32::new(CUresult::SUCCESS.0);
/// Counts the stops. Work that was submitted before the last one never executes, also once the engines are restarted.
static STOPS: AtomicU64 = AtomicU64::new(0);
static LAST_STOP: AtomicU32 = AtomicU32::new(CUresult::SUCCESS.0);
/// Held for reading while work executes.
static EXECUTING: RwLock<()> = RwLock::new(());

/// Work that accesses memory, submitted now. It executes unless the engines are stopped before.
pub(crate) fn work(work: impl FnOnce() + Send) -> impl FnOnce() + Send {
    let submitted = STOPS.load(Ordering::Acquire);
    move || {
        let executing = EXECUTING.read().unwrap_or_else(PoisonError::into_inner);
        if stopped().is_success() && STOPS.load(Ordering::Acquire) == submitted {
            work();
        }
        drop(executing);
    }
}

/// The same for a kernel, whose failure is a sticky error.
pub(crate) fn kernel(run: impl FnOnce() -> DriverResult + Send) -> impl FnOnce() + Send {
    let submitted = STOPS.load(Ordering::Acquire);
    move || {
        let executing = EXECUTING.read().unwrap_or_else(PoisonError::into_inner);
        let mut result = Ok(());
        if stopped().is_success() && STOPS.load(Ordering::Acquire) == submitted {
            result = run();
        }
        if let Err(code) = result {
            STICKY.store(code.0, Ordering::Release);
            // Does not wait for work that executes: a kernel of another stream may wait for what never comes now.
            note_stop(code);
        }
        drop(executing);
    }
}

/// How often the engines were stopped.
pub(crate) fn stops() -> u64 {
    STOPS.load(Ordering::Acquire)
}

/// Why they stopped last.
pub(crate) fn last_stop() -> CUresult {
    CUresult(LAST_STOP.load(Ordering::Acquire))
}

/// Why the engines stopped, `CUDA_SUCCESS` while they run. Work that was submitted to stopped
/// engines did not execute, so calls that wait for it must fail.
pub(crate) fn stopped() -> CUresult {
    CUresult(STOPPED.load(Ordering::Acquire))
}

/// Stops the engines. No work accesses memory once this returns.
pub(crate) fn stop(code: CUresult) {
    note_stop(code);
    drop(EXECUTING.write().unwrap_or_else(PoisonError::into_inner));
}

/// Work that was submitted executes no more.
fn note_stop(code: CUresult) {
    STOPPED.store(code.0, Ordering::Release);
    LAST_STOP.store(code.0, Ordering::Release);
    STOPS.fetch_add(1, Ordering::AcqRel);
}

/// Restarts engines that a fault stopped. A sticky error stays.
pub(crate) fn restart() {
    if check_sticky_error().is_ok() {
        STOPPED.store(CUresult::SUCCESS.0, Ordering::Release);
    }
}

/// Puts the driver into the state that a kernel's access to an invalid address leaves: every call
/// that needs a context fails with `code`, in every context and on every thread, no context can be
/// created, and work in flight stops. Only a new process recovers. `CUDA_SUCCESS` is ignored.
///
/// ```no_run
/// use cuguard_sys::CUresult;
///
/// cuguard_sim::set_sticky_error(CUresult::ILLEGAL_ADDRESS);
/// ```
pub fn set_sticky_error(code: CUresult) {
    if !code.is_success() {
        STICKY.store(code.0, Ordering::Release);
        stop(code);
    }
}

/// Fails with the sticky error, if there is one.
pub(crate) fn check_sticky_error() -> DriverResult {
    CUresult(STICKY.load(Ordering::Acquire)).ok()
}
