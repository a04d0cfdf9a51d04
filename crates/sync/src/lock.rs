//! Locks without poison: no invariant of these crates spans a call to the program's code under a lock, so a panic under one
//! leaves the data valid.

use std::sync::{
    Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError,
};

/// Locks.
///
/// ```
/// let count = std::sync::Mutex::new(1);
/// *cuguard_sync::lock(&count) += 1;
/// assert_eq!(*cuguard_sync::lock(&count), 2);
/// ```
#[inline]
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks, unless another thread holds the lock.
///
/// ```
/// let count = std::sync::Mutex::new(1);
/// let locked = cuguard_sync::lock(&count);
/// assert!(cuguard_sync::try_lock(&count).is_none());
/// ```
#[inline]
pub fn try_lock<T: ?Sized>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(locked) => Some(locked),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Locks for reading.
///
/// ```
/// let names = std::sync::RwLock::new(vec!["a"]);
/// assert_eq!(cuguard_sync::read(&names).len(), 1);
/// ```
#[inline]
pub fn read<T: ?Sized>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for writing.
///
/// ```
/// let names = std::sync::RwLock::new(vec!["a"]);
/// cuguard_sync::write(&names).push("b");
/// assert_eq!(cuguard_sync::read(&names).len(), 2);
/// ```
#[inline]
pub fn write<T: ?Sized>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
