//! Process-wide flags: whether the simulated driver runs, and whether this process was forked from
//! one in which it ran.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

static RUNNING: AtomicBool = AtomicBool::new(false);
static FORKED: AtomicBool = AtomicBool::new(false);

unsafe extern "C" fn in_forked_child() {
    FORKED.store(true, Ordering::Release);
}

/// Whether this process is a forked child of one in which the driver ran. The worker threads do not
/// exist here, and one of them may have held a lock at the fork: nothing may take a lock. A real
/// driver fails with `CUDA_ERROR_NOT_INITIALIZED`.
pub(crate) fn is_forked() -> bool {
    FORKED.load(Ordering::Acquire)
}

/// Locks a global; `None` in a forked child.
pub(crate) fn lock_unless_forked<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    (!is_forked()).then(|| mutex.lock().unwrap_or_else(PoisonError::into_inner))
}

pub(crate) fn is_running() -> bool {
    RUNNING.load(Ordering::Acquire)
}

pub(crate) fn set_running() {
    // SAFETY: the handler only stores a flag, which is allowed in a forked child. If registration
    // fails (out of memory), a forked child may deadlock, as with any lock.
    unsafe { libc::pthread_atfork(None, None, Some(in_forked_child)) };
    RUNNING.store(true, Ordering::Release);
}
