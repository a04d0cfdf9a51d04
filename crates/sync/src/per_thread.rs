//! One value for each thread, on cache lines of its own: no thread waits for a line that another one just wrote
//! (false sharing). Readers sum over all slots.
//!
//! A thread owns its slot for as long as it lives and adds with a plain load and store, which takes a fraction of
//! the time of an atomic addition. Threads beyond [`SLOTS`], and those that are ending, share one slot and add
//! atomically.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::{Mutex, PoisonError};

use crate::primitive::atomic::{AtomicU64, Ordering};
use crate::process;

/// How many threads have a slot of their own.
pub const SLOTS: usize = if cfg!(cuguard_loom) { 3 } else { 32 };

/// The slot of all other threads.
const SHARED: usize = SLOTS;

/// This thread has no slot yet.
const UNKNOWN: usize = usize::MAX;

/// Two cache lines: processors fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct CachePadded<T>(T);

/// One `T` for each slot.
#[derive(Debug)]
pub struct PerThread<T>(Box<[CachePadded<T>; SLOTS + 1]>);

impl<T: Default> Default for PerThread<T> {
    fn default() -> Self {
        Self(Box::new(std::array::from_fn(|_| CachePadded::default())))
    }
}

impl<T> PerThread<T> {
    /// The value that `value` returns, in each slot.
    pub fn from_fn(mut value: impl FnMut() -> T) -> Self {
        Self(Box::new(std::array::from_fn(|_| CachePadded(value()))))
    }

    /// The calling thread's slot.
    #[inline]
    pub fn slot(&self) -> Slot<'_, T> {
        let index = slot_index();
        Slot {
            value: &self.0[index].0,
            index,
            _not_send: PhantomData,
        }
    }

    /// The value of one slot.
    pub fn at(&self, index: usize) -> &T {
        &self.0[index].0
    }

    /// The values of all slots.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|padded| &padded.0)
    }
}

/// The calling thread's slot.
#[derive(Debug)]
pub struct Slot<'a, T> {
    value: &'a T,
    index: usize,
    /// On another thread this would be another thread's slot.
    _not_send: PhantomData<*const ()>,
}

impl<'a, T> Slot<'a, T> {
    /// The slot's index and value, if no other thread writes to it; `None` for the shared slot.
    #[inline]
    pub fn exclusive(&self) -> Option<(usize, &'a T)> {
        self.is_exclusive().then_some((self.index, self.value))
    }

    /// The slot's value, whether or not other threads write to it.
    #[inline]
    pub fn value(&self) -> &'a T {
        self.value
    }

    /// Whether no other thread writes to the slot.
    #[inline]
    pub fn is_exclusive(&self) -> bool {
        self.index != SHARED
    }

    /// Adds to one of the slot's counters, and returns what it was before.
    #[inline]
    pub fn add(&self, counter: impl FnOnce(&T) -> &AtomicU64, number: u64) -> u64 {
        let counter = counter(self.value);
        if self.is_exclusive() {
            let before = counter.load(Ordering::Relaxed);
            counter.store(before.wrapping_add(number), Ordering::Relaxed);
            before
        } else {
            counter.fetch_add(number, Ordering::Relaxed)
        }
    }

    /// [`add`](Self::add) with release ordering: a thread that reads the sum with acquire ordering sees what this one did before.
    #[inline]
    pub fn add_release(&self, counter: impl FnOnce(&T) -> &AtomicU64, number: u64) -> u64 {
        let counter = counter(self.value);
        if self.is_exclusive() {
            let before = counter.load(Ordering::Relaxed);
            counter.store(before.wrapping_add(number), Ordering::Release);
            before
        } else {
            counter.fetch_add(number, Ordering::Release)
        }
    }

    /// Subtracts from one of the slot's counters, with release ordering.
    #[inline]
    pub fn subtract(&self, counter: impl FnOnce(&T) -> &AtomicU64, number: u64) {
        let counter = counter(self.value);
        if self.is_exclusive() {
            let before = counter.load(Ordering::Relaxed);
            counter.store(before.wrapping_sub(number), Ordering::Release);
        } else {
            counter.fetch_sub(number, Ordering::Release);
        }
    }
}

/// Slots of threads that ended. The next owner sees what the last one counted: both lock this.
static FREE: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// The first slot that no thread ever had.
static NEXT: Mutex<usize> = Mutex::new(0);

/// Returns the slot when the thread ends.
struct Owner(Cell<usize>);

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = SLOT_INDEX.try_with(|index| index.set(SHARED));
        let index = self.0.get();
        // In a forked child a thread that does not exist there may hold the lock.
        if index != SHARED && !process::is_exiting() {
            let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
            free.push(index);
        }
    }
}

thread_local! {
    // Without a destructor, so that it can be read while the thread's locals are dropped.
    static SLOT_INDEX: Cell<usize> = const { Cell::new(UNKNOWN) };
    static OWNER: Owner = const { Owner(Cell::new(SHARED)) };
}

/// The index of the calling thread's slot: the same for as long as the thread lives.
#[inline]
pub fn slot_index() -> usize {
    #[cfg(cuguard_loom)]
    return loom_index();
    #[cfg(not(cuguard_loom))]
    match SLOT_INDEX.get() {
        // A range, so that the compiler sees that the index is within bounds.
        known @ 0..=SHARED => known,
        _ => acquire().min(SHARED),
    }
}

/// loom's threads share the thread-local values of one thread, so each gets an index by its own means.
#[cfg(cuguard_loom)]
fn loom_index() -> usize {
    loom::lazy_static! {
        static ref COUNT: loom::sync::atomic::AtomicUsize = loom::sync::atomic::AtomicUsize::new(0);
    }
    loom::thread_local! {
        static INDEX: usize = COUNT.fetch_add(1, Ordering::Relaxed).min(SHARED);
    }
    INDEX.with(|index| *index)
}

thread_local! {
    // Without a destructor, for the same reason.
    static NUMBER: Cell<u64> = const { Cell::new(0) };
}

/// A number that no other thread of the process has or had, not 0, and a multiple of 4: its low bits are free for flags. Unlike
/// a slot, and unlike the address of a thread-local value, it is never reused.
#[inline]
pub fn thread_number() -> u64 {
    #[cfg(cuguard_loom)]
    return loom_number();
    #[cfg(not(cuguard_loom))]
    match NUMBER.get() {
        0 => acquire_number(),
        known => known,
    }
}

/// The same where the thread has a number already; else 0.
#[inline(always)]
pub(crate) fn known_number() -> u64 {
    #[cfg(cuguard_loom)]
    return loom_number();
    #[cfg(not(cuguard_loom))]
    NUMBER.get()
}

#[cfg(cuguard_loom)]
fn loom_number() -> u64 {
    loom::thread_local! {
        static NUMBER: u64 = next_number();
    }
    NUMBER.with(|number| *number)
}

#[cold]
#[inline(never)]
fn acquire_number() -> u64 {
    let number = next_number();
    NUMBER.set(number);
    number
}

fn next_number() -> u64 {
    // Not loom's: which number a thread has changes nothing.
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(4);
    NEXT.fetch_add(4, Ordering::Relaxed)
}

/// Gives the calling thread a slot.
#[cold]
#[inline(never)]
fn acquire() -> usize {
    let index = acquire_index();
    SLOT_INDEX.set(index);
    index
}

fn acquire_index() -> usize {
    if process::is_exiting() {
        return SHARED;
    }
    // A thread whose locals are already dropped could not return a slot.
    let owned = OWNER.try_with(|owner| {
        let free = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let index = free.unwrap_or_else(|| {
            let mut next = NEXT.lock().unwrap_or_else(PoisonError::into_inner);
            let index = (*next).min(SHARED);
            *next = (index + 1).min(SHARED);
            index
        });
        owner.0.set(index);
        index
    });
    owned.unwrap_or(SHARED)
}

#[cfg(all(test, not(cuguard_loom)))]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    use super::{PerThread, SHARED, SLOTS, slot_index};

    /// More threads than slots, all alive at once: nothing is lost, and no two own the same slot.
    #[test]
    fn all_threads_are_counted() {
        let slots: PerThread<AtomicU64> = PerThread::default();
        let (threads, barrier) = (SLOTS + 16, Barrier::new(SLOTS + 16));
        let mut taken: Vec<usize> = thread::scope(|scope| {
            let count = || {
                let here = slot_index();
                barrier.wait();
                for _ in 0..1000 {
                    slots.slot().add(|counter| counter, 1);
                }
                assert_eq!(slot_index(), here);
                here
            };
            let handles: Vec<_> = (0..threads).map(|_| scope.spawn(count)).collect();
            handles.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let sum: u64 = slots.all().map(|n| n.load(Ordering::Relaxed)).sum();
        assert_eq!(sum, 1000 * threads as u64);
        taken.retain(|slot| *slot != SHARED);
        taken.sort_unstable();
        assert!(taken.windows(2).all(|pair| pair[0] != pair[1]), "{taken:?}");
    }

    /// Threads that come one after the other reuse slots, also while their locals are dropped.
    #[test]
    fn slots_are_returned() {
        static COUNTED: std::sync::LazyLock<PerThread<AtomicU64>> =
            std::sync::LazyLock::new(PerThread::default);
        struct AtEnd;
        impl Drop for AtEnd {
            fn drop(&mut self) {
                COUNTED.slot().add(|counter| counter, 1);
            }
        }
        thread_local!(static AT_END: AtEnd = const { AtEnd });
        for _ in 0..4 * SLOTS {
            thread::spawn(|| {
                AT_END.with(|_| ());
                COUNTED.slot().add(|counter| counter, 1);
            })
            .join()
            .unwrap();
        }
        let sum: u64 = COUNTED.all().map(|n| n.load(Ordering::Relaxed)).sum();
        assert_eq!(sum, 8 * SLOTS as u64);
    }
}
