//! Lanes: each thread counts in a place of its own, so that none waits for a cache line that another
//! one just wrote. Who wants the sum adds up all lanes.
//!
//! A thread has its lane alone for as long as it lives, and so can count with a plain load and
//! store, which take a fraction of the time of an atomic addition. Threads beyond the number of
//! lanes, and those that are just ending, share one, and add atomically there.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::exit;

/// How many threads have a lane of their own.
pub(crate) const LANES: usize = 32;

/// The lane of all other threads.
const SHARED: usize = LANES;

/// This thread has not asked yet.
const UNKNOWN: usize = usize::MAX;

/// One thing for each lane, on cache lines of its own. (Processors fetch them in pairs.)
#[derive(Debug, Default)]
#[repr(align(128))]
struct Alone<T>(T);

/// One `T` for each lane.
#[derive(Debug)]
pub(crate) struct Lanes<T>(Box<[Alone<T>; LANES + 1]>);

impl<T: Default> Default for Lanes<T> {
    fn default() -> Self {
        Self(Box::new(std::array::from_fn(|_| Alone::default())))
    }
}

impl<T> Lanes<T> {
    /// The calling thread's.
    #[inline]
    pub(crate) fn mine(&self) -> Mine<'_, T> {
        let lane = lane();
        Mine {
            value: &self.0[lane].0,
            lane,
            _this_thread: PhantomData,
        }
    }

    /// That of some lane.
    pub(crate) fn at(&self, lane: usize) -> &T {
        &self.0[lane].0
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|alone| &alone.0)
    }
}

/// What is in the calling thread's lane.
#[derive(Debug)]
pub(crate) struct Mine<'a, T> {
    value: &'a T,
    lane: usize,
    /// On another thread it would be somebody else's.
    _this_thread: PhantomData<*const ()>,
}

impl<'a, T> Mine<'a, T> {
    /// The lane and what no other thread writes to; `None` where threads share the lane.
    #[inline]
    pub(crate) fn alone(&self) -> Option<(usize, &'a T)> {
        self.is_alone().then_some((self.lane, self.value))
    }

    #[inline]
    fn is_alone(&self) -> bool {
        self.lane != SHARED
    }

    /// Adds to one of the lane's counters, and answers what it was before.
    #[inline]
    pub(crate) fn add(&self, counter: impl FnOnce(&T) -> &AtomicU64, number: u64) -> u64 {
        let counter = counter(self.value);
        if self.is_alone() {
            let before = counter.load(Ordering::Relaxed);
            counter.store(before.wrapping_add(number), Ordering::Relaxed);
            before
        } else {
            counter.fetch_add(number, Ordering::Relaxed)
        }
    }
}

impl Mine<'_, AtomicU64> {
    /// Adds one.
    #[inline]
    pub(crate) fn enter(&self) {
        self.add(|inside| inside, 1);
    }

    /// Takes one away, after all that the thread did before.
    #[inline]
    pub(crate) fn leave(&self) {
        if self.is_alone() {
            let inside = self.value.load(Ordering::Relaxed);
            self.value.store(inside.wrapping_sub(1), Ordering::Release);
        } else {
            self.value.fetch_sub(1, Ordering::Release);
        }
    }
}

/// Lanes that threads have given back. What the last owner counted is seen by the next: it comes
/// through this lock.
static FREE: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// The first lane that nobody ever had.
static NEXT: Mutex<usize> = Mutex::new(0);

/// Gives the lane back when the thread ends.
struct Holder(Cell<usize>);

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = LANE.try_with(|lane| lane.set(SHARED));
        let lane = self.0.get();
        // A thread that is not there any more may hold the lock in a forked child.
        if lane != SHARED && !exit::is_exiting() {
            let mut free = FREE.lock().unwrap_or_else(PoisonError::into_inner);
            free.push(lane);
        }
    }
}

thread_local! {
    // Without a destructor, so that it can be read while a thread's locals go.
    static LANE: Cell<usize> = const { Cell::new(UNKNOWN) };
    static HOLDER: Holder = const { Holder(Cell::new(SHARED)) };
}

/// The calling thread's lane: the same for as long as the thread lives.
#[inline]
pub(crate) fn lane() -> usize {
    LANE.with(|lane| {
        if lane.get() == UNKNOWN {
            lane.set(take());
        }
        lane.get()
    })
}

#[cold]
fn take() -> usize {
    if exit::is_exiting() {
        return SHARED;
    }
    // A thread that is ending already could not give a lane back.
    let held = HOLDER.try_with(|holder| {
        let free = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let lane = free.unwrap_or_else(|| {
            let mut next = NEXT.lock().unwrap_or_else(PoisonError::into_inner);
            let lane = (*next).min(SHARED);
            *next = (lane + 1).min(SHARED);
            lane
        });
        holder.0.set(lane);
        lane
    });
    held.unwrap_or(SHARED)
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;

    use super::{LANES, Lanes, SHARED, lane};

    /// More threads than lanes, all alive at once: nothing is lost, and no two have a lane alone.
    #[test]
    fn all_threads_are_counted() {
        let lanes: Lanes<AtomicU64> = Lanes::default();
        let (threads, barrier) = (LANES + 16, Barrier::new(LANES + 16));
        let mut taken: Vec<usize> = thread::scope(|scope| {
            let count = || {
                let here = lane();
                barrier.wait();
                for _ in 0..1000 {
                    lanes.mine().add(|counter| counter, 1);
                }
                assert_eq!(lane(), here);
                here
            };
            let handles: Vec<_> = (0..threads).map(|_| scope.spawn(count)).collect();
            handles.into_iter().map(|t| t.join().unwrap()).collect()
        });
        let sum: u64 = lanes.all().map(|n| n.load(Ordering::Relaxed)).sum();
        assert_eq!(sum, 1000 * threads as u64);
        taken.retain(|lane| *lane != SHARED);
        taken.sort_unstable();
        assert!(taken.windows(2).all(|pair| pair[0] != pair[1]), "{taken:?}");
    }

    /// Threads that come one after the other use few lanes, also while their locals go.
    #[test]
    fn lanes_are_given_back() {
        static COUNTED: std::sync::LazyLock<Lanes<AtomicU64>> =
            std::sync::LazyLock::new(Lanes::default);
        struct AtEnd;
        impl Drop for AtEnd {
            fn drop(&mut self) {
                COUNTED.mine().add(|counter| counter, 1);
            }
        }
        thread_local!(static AT_END: AtEnd = const { AtEnd });
        for _ in 0..4 * LANES {
            thread::spawn(|| {
                AT_END.with(|_| ());
                COUNTED.mine().add(|counter| counter, 1);
            })
            .join()
            .unwrap();
        }
        let sum: u64 = COUNTED.all().map(|n| n.load(Ordering::Relaxed)).sum();
        assert_eq!(sum, 8 * LANES as u64);
    }
}
