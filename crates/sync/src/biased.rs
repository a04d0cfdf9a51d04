//! A lock that is biased to one thread, its owner.
//!
//! ```text
//!     the owner                another thread
//!     ---------                --------------
//!     owner |= INSIDE          taken = its number (compare and exchange)
//!     light barrier            heavy barrier
//!     taken? then wait         owner inside? then wait
//! ```
//!
//! Each side writes first and then reads, with a [barrier](crate::fence) between, so at least one of them sees the other.
//! The owner enters with a store, a load and no atomic read-modify-write: about 1 ns. Another thread pays for a
//! `membarrier`, microseconds. For what one thread uses all the time and others once in a while.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::time::Instant;

use crate::per_thread::{known_number, thread_number};
use crate::primitive::atomic::{AtomicU64, Ordering};
use crate::primitive::pause;
use crate::{fence, process};

/// The number of no thread.
const NONE: u64 = 0;

/// Set in the owner's number while it is inside, or about to be.
const INSIDE: u64 = 1;

/// Set in the owner's number where the light barrier is an instruction.
const NEEDS_BARRIER: u64 = 2;

/// The owner of a lock that is released. Not [`NONE`], which a thread without a number has.
const RELEASED: u64 = NEEDS_BARRIER;

/// A value that its owner thread accesses at next to no cost, and other threads through a slow lock.
///
/// The thread that creates it is the owner, for as long as the thread lives or until it calls [`release`](Self::release).
///
/// ```
/// let cache = cuguard_sync::Biased::new(vec![1, 2]);
/// cache.enter().expect("this thread created it").push(3);
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         assert!(cache.enter().is_none(), "not the owner");
///         cache.lock().expect("no fork, no exit").clear();
///     });
/// });
/// assert!(cache.enter().unwrap().is_empty());
/// ```
pub struct Biased<T: ?Sized> {
    /// The number of the thread that has the lock, or waits until the owner is out; else [`NONE`].
    taken: AtomicU64,
    /// The owner's number, perhaps with [`NEEDS_BARRIER`] and [`INSIDE`]; [`RELEASED`] for good once it is released. Only the
    /// owner writes it. One word, so that one comparison shows that the usual entry is possible.
    owner: AtomicU64,
    /// The process that created it. In a forked child, threads that it waits for may not exist.
    process: u32,
    value: UnsafeCell<T>,
}

// SAFETY: the value moves with it.
unsafe impl<T: ?Sized + Send> Send for Biased<T> {}
// SAFETY: of all threads, one at a time has a reference to the value: the owner if it has set `INSIDE` and then not seen
// `taken`, or the thread that has set `taken` and then not seen `INSIDE`.
unsafe impl<T: ?Sized + Send> Sync for Biased<T> {}

/// The owner's access, until dropped. If it is forgotten, no thread gets the value any more.
pub struct OwnerGuard<'a, T: ?Sized> {
    biased: &'a Biased<T>,
    /// The word `owner` while the owner is outside.
    outside: u64,
    /// Only the owner writes that word.
    _not_send: PhantomData<*const ()>,
}

/// Another thread's access, until dropped. If it is forgotten, no thread gets the value any more.
pub struct OtherGuard<'a, T: ?Sized> {
    biased: &'a Biased<T>,
    /// The thread's number is in `taken`.
    _not_send: PhantomData<*const ()>,
}

impl<T> Biased<T> {
    /// Owned by the calling thread.
    pub fn new(value: T) -> Self {
        fence::prepare();
        let flag = match fence::is_asymmetric() || cfg!(cuguard_loom) {
            true => 0,
            false => NEEDS_BARRIER,
        };
        Self {
            taken: AtomicU64::new(NONE),
            owner: AtomicU64::new(thread_number() | flag),
            process: std::process::id(),
            value: UnsafeCell::new(value),
        }
    }

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> Biased<T> {
    /// Enters as the owner; waits while another thread has the lock.
    ///
    /// `None` if the calling thread is not the owner, if it is already inside, or if the lock cannot be had: in a forked
    /// child, where the thread that has it may not exist, or while the process exits.
    #[inline]
    pub fn enter(&self) -> Option<OwnerGuard<'_, T>> {
        match self.try_enter() {
            Some(inside) => Some(inside),
            None => self.enter_otherwise(),
        }
    }

    /// Enters as the owner in the usual case; for a caller that has a slower way. `None` also if another thread has the lock, or
    /// if the barrier is an instruction on this machine. A few instructions without a call.
    ///
    /// ```
    /// let counter = cuguard_sync::Biased::new(0);
    /// if let Some(mut counter) = counter.try_enter().or_else(|| counter.enter()) {
    ///     *counter += 1;
    /// }
    /// assert_eq!(counter.into_inner(), 1);
    /// ```
    #[inline(always)]
    pub fn try_enter(&self) -> Option<OwnerGuard<'_, T>> {
        // Only the owner writes it, so a thread that reads its own number has it still.
        let outside = self.owner.load(Ordering::Relaxed);
        if outside != known_number() {
            return None;
        }
        let inside = self.set_inside(outside);
        // The barrier is asymmetric: the owner's number is without `NEEDS_BARRIER`.
        fence::light_if_asymmetric();
        // With acquire ordering: the owner sees what the last thread that had the lock wrote. Dropped, `inside` leaves.
        (self.taken.load(Ordering::Acquire) == NONE).then_some(inside)
    }

    /// Sets [`INSIDE`], until the guard is dropped.
    #[inline(always)]
    fn set_inside(&self, outside: u64) -> OwnerGuard<'_, T> {
        self.owner.store(outside | INSIDE, Ordering::Relaxed);
        OwnerGuard {
            biased: self,
            outside,
            _not_send: PhantomData,
        }
    }

    /// Enters where [`try_enter`](Self::try_enter) does not: another thread has its turn first.
    #[cold]
    #[inline(never)]
    fn enter_otherwise(&self) -> Option<OwnerGuard<'_, T>> {
        let outside = self.owner.load(Ordering::Relaxed);
        if outside & INSIDE != 0 || !self.is_owner() {
            return None;
        }
        let mut wait = Wait::new(self.process);
        loop {
            let inside = self.set_inside(outside);
            fence::light();
            if self.taken.load(Ordering::Acquire) == NONE {
                return Some(inside);
            }
            drop(inside);
            loop {
                let taken = self.taken.load(Ordering::Relaxed);
                if taken == NONE {
                    break;
                }
                // The owner itself has it, by `lock`.
                if taken == thread_number() || !wait.goes_on() {
                    return None;
                }
            }
        }
    }

    /// Takes the lock on any thread: waits until the owner, or the thread that has it, is out.
    ///
    /// `None` if the calling thread is already inside, or if the lock cannot be had: in a forked child, where the thread that
    /// has it may not exist, or while the process exits.
    pub fn lock(&self) -> Option<OtherGuard<'_, T>> {
        if self.is_owner() && self.is_inside(Ordering::Relaxed) {
            return None;
        }
        let this = thread_number();
        let mut wait = Wait::new(self.process);
        // With acquire ordering: it sees what the last thread that had the lock wrote.
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        while let Err(other) = self.taken.compare_exchange(NONE, this, success, failure) {
            if other == this || !wait.goes_on() {
                return None;
            }
        }
        // Dropped, which frees the lock, if it gives up.
        let taken = OtherGuard {
            biased: self,
            _not_send: PhantomData,
        };
        // With acquire ordering: an owner that has released the lock does not enter again.
        if self.owner.load(Ordering::Acquire) != RELEASED {
            fence::heavy();
            while self.is_inside(Ordering::Acquire) {
                if !wait.goes_on() {
                    return None;
                }
            }
        }
        Some(taken)
    }

    /// Ends the ownership: from now on every thread uses [`lock`](Self::lock), without a `membarrier`. For a thread that
    /// ends. (A lock whose owner has ended without this works as before.) Returns whether the calling thread was the
    /// owner and not inside.
    pub fn release(&self) -> bool {
        let releases = self.is_owner() && !self.is_inside(Ordering::Relaxed);
        if releases {
            self.owner.store(RELEASED, Ordering::Release);
        }
        releases
    }

    /// Whether the calling thread is the owner.
    #[inline]
    pub fn is_owner(&self) -> bool {
        let owner = self.owner.load(Ordering::Relaxed);
        owner & !(NEEDS_BARRIER | INSIDE) == thread_number()
    }

    /// Whether the owner is inside, or about to be.
    fn is_inside(&self, order: Ordering) -> bool {
        self.owner.load(order) & INSIDE != 0
    }

    /// The value, of which the caller has the only reference.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

/// Waits for another thread, until there is reason to think that it does not exist.
struct Wait {
    turn: u32,
    since: Option<Instant>,
    process: u32,
}

impl Wait {
    fn new(process: u32) -> Self {
        Self {
            turn: 0,
            since: None,
            process,
        }
    }

    /// Waits a little. False where it may be in vain. In a forked child, it is most likely: no time is spent on it. While the
    /// process exits, a signal handler that calls `exit` may have interrupted the very thread that is waited for, which else
    /// is out within a moment.
    fn goes_on(&mut self) -> bool {
        pause(self.turn);
        self.turn = self.turn.saturating_add(1);
        if self.turn < 100 || cfg!(cuguard_loom) {
            return true;
        }
        let since = self.since.get_or_insert_with(Instant::now);
        let is_child = std::process::id() != self.process;
        !is_child && (!process::is_exiting() || since.elapsed() < fence::EXIT_TIMEOUT)
    }
}

impl<T: ?Sized> Deref for OwnerGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: see `Sync`: no other thread has a reference, and this one has no second guard.
        unsafe { &*self.biased.value.get() }
    }
}

impl<T: ?Sized> DerefMut for OwnerGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the same.
        unsafe { &mut *self.biased.value.get() }
    }
}

impl<T: ?Sized> Drop for OwnerGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let owner = &self.biased.owner;
        owner.store(self.outside, Ordering::Release);
    }
}

impl<T: ?Sized> Deref for OtherGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: see `Sync`: no other thread has a reference, and this one has no second guard.
        unsafe { &*self.biased.value.get() }
    }
}

impl<T: ?Sized> DerefMut for OtherGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the same.
        unsafe { &mut *self.biased.value.get() }
    }
}

impl<T: ?Sized> Drop for OtherGuard<'_, T> {
    fn drop(&mut self) {
        self.biased.taken.store(NONE, Ordering::Release);
    }
}

// Not the value, which another thread may change.
impl<T: ?Sized> fmt::Debug for Biased<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Biased")
            .field("owner", &self.owner)
            .field("taken", &self.taken)
            .finish_non_exhaustive()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for OwnerGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for OtherGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(all(test, not(cuguard_loom)))]
mod tests;
