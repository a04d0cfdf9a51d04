//! Whether the reporting thread can use the dynamic linker, whose locks a thread that exits may hold.
//!
//! ```text
//!   UNKNOWN ── the reporting thread got the locks ──► FREE
//!      └────── it did not, in time ─────────────────► LOCKED: another thread makes the report
//! ```

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::futex;

const UNKNOWN: u32 = 0;
const FREE: u32 = 1;
const LOCKED: u32 = 2;

/// What is known for the request that is being served.
static STATE: AtomicU32 = AtomicU32::new(UNKNOWN);

/// Whether the reporting thread waits for the locks, for too long already.
static IS_STUCK: AtomicBool = AtomicBool::new(false);

/// How long the locks may be held: while a library is loaded, its file is read.
const PATIENCE: Duration = Duration::from_secs(3);

/// A new request: nothing is known.
pub(super) fn forget() {
    STATE.store(UNKNOWN, Ordering::Release);
}

/// Waits for the locks. Returns whether the reporting thread, which calls this, makes the report.
pub(super) fn is_free() -> bool {
    if STATE.load(Ordering::Acquire) == LOCKED {
        return false;
    }
    unsafe extern "C" fn stop(_: *mut libc::dl_phdr_info, _: usize, _: *mut c_void) -> c_int {
        1
    }
    let mut info = MaybeUninit::<libc::Dl_info>::uninit();
    // There are two locks: of the list of libraries, and of loading.
    // SAFETY: the callback reads nothing; the structure can be written to.
    unsafe {
        libc::dl_iterate_phdr(Some(stop), std::ptr::null_mut());
        libc::dladdr((&raw const STATE).cast(), info.as_mut_ptr());
    }
    IS_STUCK.store(false, Ordering::Release);
    let changed = STATE.compare_exchange(UNKNOWN, FREE, Ordering::AcqRel, Ordering::Acquire);
    futex::wake(&STATE);
    changed != Err(LOCKED)
}

/// Waits until the reporting thread has had the locks. Returns whether it has; otherwise it does not make the report.
/// Async-signal-safe.
pub(super) fn wait() -> bool {
    let patience = match IS_STUCK.load(Ordering::Acquire) {
        true => Duration::ZERO,
        false => PATIENCE,
    };
    let until = Instant::now() + patience;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if STATE.load(Ordering::Acquire) != UNKNOWN {
            return true;
        }
        if left.is_zero() {
            break;
        }
        futex::wait(&STATE, UNKNOWN, Some(left));
    }
    let changed = STATE.compare_exchange(UNKNOWN, LOCKED, Ordering::AcqRel, Ordering::Acquire);
    if changed.is_ok() {
        IS_STUCK.store(true, Ordering::Release);
        crate::search::search_alone();
    }
    changed.is_err()
}
