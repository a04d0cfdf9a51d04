//! One thread at a time in the driver's stream-ordered allocator.
//!
//! That allocator has one lock, which gets slower when threads come back to it after other work. Measured on an H200 with
//! 16 threads: 45 µs a pair of calls, 69 µs with 300 ns of any arithmetic between them. Recording is such work. So threads
//! take turns before they call the driver, and a turn includes the recording: 45 µs again.
//!
//! As long as one thread alone calls that allocator, there are no turns.
//!
//! A turn makes nothing safe, only fast. A thread that has waited for [`PATIENCE`] takes the turn of another: a driver call
//! that blocks, a turn that a fork copied, and a thread that was cancelled cannot stop the program.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long a thread waits at most.
const PATIENCE: Duration = Duration::from_millis(10);
/// How often a thread looks at the turn before it looks at the clock.
const LOOKS: u32 = 64;
/// How often it looks at the clock before it lets others run meanwhile: some 20 µs. The holder may have lost its processor.
const SPINS: u32 = 16;

/// In place of the only thread: there are several.
const SEVERAL: usize = usize::MAX;

static TURNS: Turns = Turns {
    only: AtomicUsize::new(0),
    holder: Holder(AtomicUsize::new(0)),
    patience: PATIENCE,
};

/// On cache lines of its own: waiting threads do not slow down those that read what lies beside it.
#[repr(align(128))]
struct Holder(AtomicUsize);

struct Turns {
    /// The only thread that ever waited, or [`SEVERAL`]; 0 is none.
    only: AtomicUsize,
    /// The thread whose turn it is; 0 is none.
    holder: Holder,
    patience: Duration,
}

/// The turn of a thread, until dropped.
pub(crate) struct Turn<'a> {
    turns: &'a Turns,
    thread: usize,
}

/// Waits for the turn of this thread. `None` for the only thread, and inside of a thread's own turn: the driver calls its own
/// functions, and a signal handler may interrupt a turn.
#[inline]
pub(crate) fn wait() -> Option<Turn<'static>> {
    TURNS.wait()
}

impl Turns {
    #[inline]
    fn wait(&self) -> Option<Turn<'_>> {
        // SAFETY: it has no requirements. Cheaper here than a thread-local variable, and never 0.
        let thread = unsafe { libc::pthread_self() } as usize;
        match self.only.load(Ordering::Relaxed) == thread {
            true => None,
            false => self.wait_as(thread),
        }
    }

    #[inline(never)]
    fn wait_as(&self, thread: usize) -> Option<Turn<'_>> {
        if self.is_only(thread) {
            return None;
        }
        match self.try_take(thread) {
            Err(holder) if holder == thread => return None,
            Err(_) => self.contend(thread),
            Ok(_) => {}
        }
        let turns = self;
        Some(Turn { turns, thread })
    }

    /// Whether no other thread has waited before. Two threads that come at the same moment may both miss that, once.
    fn is_only(&self, thread: usize) -> bool {
        let only = self.only.load(Ordering::Relaxed);
        if only == 0 {
            self.only.store(thread, Ordering::Relaxed);
        } else if only != thread && only != SEVERAL {
            self.only.store(SEVERAL, Ordering::Relaxed);
        }
        only == 0 || only == thread
    }

    #[inline]
    fn try_take(&self, thread: usize) -> Result<usize, usize> {
        let (acquire, relaxed) = (Ordering::Acquire, Ordering::Relaxed);
        self.holder.0.compare_exchange(0, thread, acquire, relaxed)
    }

    #[cold]
    #[inline(never)]
    fn contend(&self, thread: usize) {
        let began = Instant::now();
        let mut spins = 0;
        while began.elapsed() < self.patience {
            for _ in 0..LOOKS {
                if self.holder.0.load(Ordering::Relaxed) == 0 && self.try_take(thread).is_ok() {
                    return;
                }
                std::hint::spin_loop();
            }
            match spins == SPINS {
                true => std::thread::yield_now(),
                false => spins += 1,
            }
        }
        self.holder.0.store(thread, Ordering::Relaxed);
    }
}

impl Drop for Turn<'_> {
    #[inline]
    fn drop(&mut self) {
        // Otherwise another thread has lost its patience, and it is the turn of that thread. If it does so between the two,
        // its turn is shorter. An atomic exchange would take as long as all the rest.
        if self.turns.holder.0.load(Ordering::Relaxed) == self.thread {
            self.turns.holder.0.store(0, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
    use std::thread;
    use std::time::Duration;

    use super::{Holder, SEVERAL, Turns};

    fn turns(patience: Duration) -> Turns {
        let (only, holder) = (AtomicUsize::new(SEVERAL), Holder(AtomicUsize::new(0)));
        Turns {
            only,
            holder,
            patience,
        }
    }

    #[test]
    fn a_single_thread_needs_no_turn() {
        let turns = Turns {
            only: AtomicUsize::new(0),
            ..turns(Duration::MAX)
        };
        assert!((0..3).all(|_| turns.wait().is_none()));
        thread::scope(|scope| scope.spawn(|| assert!(turns.wait().is_some())).join()).unwrap();
        assert!(turns.wait().is_some());
    }

    #[test]
    fn a_nested_call_gets_no_turn() {
        let turns = turns(Duration::MAX);
        let outer = turns.wait();
        assert!(outer.is_some() && turns.wait().is_none());
        drop(outer);
        assert!(turns.wait().is_some());
    }

    #[test]
    fn a_turn_that_does_not_end_is_lost() {
        let turns = turns(Duration::from_millis(1));
        let endless = turns.wait();
        thread::scope(|scope| {
            scope.spawn(|| {
                let taken = turns.wait();
                assert!(taken.is_some());
                let holder = turns.holder.0.load(Ordering::Relaxed);
                // Does not end the turn of its successor.
                drop(endless);
                assert_eq!(turns.holder.0.load(Ordering::Relaxed), holder);
                drop(taken);
                assert_eq!(turns.holder.0.load(Ordering::Relaxed), 0);
            });
        });
    }

    #[test]
    fn turns_exclude_each_other() {
        let turns = turns(Duration::MAX);
        let (inside, count) = (AtomicBool::new(false), AtomicU32::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let turn = turns.wait();
                        assert!(turn.is_some() && !inside.swap(true, Ordering::Relaxed));
                        count.fetch_add(1, Ordering::Relaxed);
                        inside.store(false, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(count.into_inner(), 2000);
    }
}
