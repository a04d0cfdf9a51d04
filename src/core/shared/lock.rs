//! Locks and thread-local flags.

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::LocalKey;
use std::time::Duration;

/// Locks. Poison is ignored: no invariant of this crate spans a call to the program's code under a lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks, unless another thread holds the lock.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(locked) => Some(locked),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// How often [`within_patience`] attempts it, a millisecond apart.
const ATTEMPTS: u32 = 100;

/// Repeats an attempt that fails while another thread holds a lock. That thread may wait for the calling one, or be the calling
/// one.
pub(crate) fn within_patience<T>(attempt: impl Fn() -> Option<T>) -> Option<T> {
    (0..ATTEMPTS).find_map(|number| {
        if number != 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        attempt()
    })
}

/// Sets a thread-local flag until dropped, and restores its value then.
pub(crate) struct FlagGuard {
    flag: &'static LocalKey<Cell<bool>>,
    /// Whether it was set before.
    pub(crate) was_set: bool,
}

impl FlagGuard {
    pub(crate) fn set(flag: &'static LocalKey<Cell<bool>>) -> Self {
        let was_set = flag.replace(true);
        Self { flag, was_set }
    }
}

impl Drop for FlagGuard {
    fn drop(&mut self) {
        self.flag.set(self.was_set);
    }
}
