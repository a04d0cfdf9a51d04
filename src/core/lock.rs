//! Locks and thread-local flags.

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::LocalKey;

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
