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
    /// if the barrier is an instruction on this machine. Small: with it, no call is inlined into the caller.
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
        // It is, because the owner's number is without `NEEDS_BARRIER`.
        fence::light_if_asymmetric();
        // With acquire ordering: the owner sees what the last thread that had the lock wrote. Dropped, `inside` leaves.
        (self.taken.load(Ordering::Acquire) == NONE).then_some(inside)
    }

    /// The owner says that it is inside.
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
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    use super::Biased;

    /// Two words that are equal whenever no thread is inside.
    type Pair = Biased<[u64; 2]>;

    fn add(pair: &mut [u64; 2]) {
        assert_eq!(pair[0], pair[1]);
        pair[0] += 1;
        // The compiler must not write both at once.
        std::hint::black_box(&mut *pair);
        pair[1] += 1;
    }

    #[test]
    fn the_owner_and_others_exclude_each_other() {
        const OFTEN: u64 = 300_000;
        const SELDOM: u64 = 1_000;
        let start = AtomicBool::new(false);
        let pair = thread::scope(|scope| {
            let (sender, receiver) = std::sync::mpsc::channel::<Arc<Pair>>();
            let owner = scope.spawn({
                let start = &start;
                move || {
                    let pair = Arc::new(Pair::new([0; 2]));
                    sender.send(pair.clone()).unwrap();
                    while !start.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                    for _ in 0..OFTEN {
                        add(&mut pair.enter().expect("the owner"));
                    }
                }
            });
            let pair = receiver.recv().unwrap();
            for _ in 0..3 {
                let pair = pair.clone();
                scope.spawn(move || {
                    (0..SELDOM).for_each(|_| add(&mut pair.lock().expect("not inside")));
                });
            }
            start.store(true, Ordering::Relaxed);
            owner.join().unwrap();
            pair
        });
        let pair = Arc::into_inner(pair).unwrap().into_inner();
        assert_eq!(pair, [OFTEN + 3 * SELDOM; 2]);
    }

    #[test]
    fn a_second_entry_is_refused() {
        let pair = Pair::new([0; 2]);
        let inside = pair.enter().expect("the owner");
        assert!(pair.enter().is_none() && pair.lock().is_none() && !pair.release());
        drop(inside);
        let taken = pair.lock().expect("not inside");
        assert!(pair.enter().is_none() && pair.lock().is_none());
        drop(taken);
        assert!(pair.enter().is_some());
    }

    #[test]
    fn other_threads_cannot_enter_and_can_lock_once_the_owner_has_ended() {
        for releases in [false, true] {
            let pair = thread::spawn(move || {
                let pair = Pair::new([0; 2]);
                add(&mut pair.enter().expect("the owner"));
                assert!(!releases || pair.release() && pair.enter().is_none());
                pair
            })
            .join()
            .unwrap();
            assert!(pair.enter().is_none() && !pair.release() && !pair.is_owner());
            add(&mut pair.lock().expect("no other thread"));
            assert_eq!(*pair.lock().unwrap(), [2; 2]);
        }
    }

    #[test]
    fn a_panic_inside_frees_the_lock() {
        let pair = Pair::new([0; 2]);
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _inside = pair.enter();
            std::panic::resume_unwind(Box::new(()));
        }));
        assert!(panicked.is_err());
        assert!(pair.enter().is_some());
    }

    /// In a forked child, the owner is the thread that called `fork`, or does not exist. Neither waits for ever.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_forked_child_waits_for_no_thread_that_does_not_exist() {
        /// Runs in a forked child, which locks and allocates nothing.
        fn holds_in_a_child(check: impl FnOnce() -> bool) {
            // SAFETY: the child ends without running anything of the parent.
            let status = unsafe {
                let child = libc::fork();
                if child == 0 {
                    libc::alarm(20);
                    libc::_exit(i32::from(!check()));
                }
                let mut status = -1;
                libc::waitpid(child, &raw mut status, 0);
                status
            };
            assert_eq!(status, 0);
        }
        let own = Pair::new([0; 2]);
        holds_in_a_child(|| own.enter().is_some() && own.lock().is_some());
        let (inside, over) = (AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            let (sender, receiver) = std::sync::mpsc::channel::<Arc<Pair>>();
            let (own, inside, over) = (&own, &inside, &over);
            scope.spawn(move || {
                let pair = Arc::new(Pair::new([0; 2]));
                sender.send(pair.clone()).unwrap();
                let _inside = pair.enter().expect("the owner");
                let _taken = own.lock().expect("the owner is out");
                inside.store(true, Ordering::Relaxed);
                while !over.load(Ordering::Relaxed) {
                    thread::yield_now();
                }
            });
            let other = receiver.recv().unwrap();
            while !inside.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            holds_in_a_child(|| other.lock().is_none());
            holds_in_a_child(|| own.enter().is_none() && own.lock().is_none());
            over.store(true, Ordering::Relaxed);
        });
        assert!(own.enter().is_some());
    }
}
