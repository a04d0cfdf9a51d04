//! Locks and thread-local flags.

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::LocalKey;

/// Locks. Poison is ignored: no invariant of this crate spans a call to the program's code under a lock.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
