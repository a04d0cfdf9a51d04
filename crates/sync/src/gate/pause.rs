//! A reversible stop: while a gate is paused, operations wait in front of it.
//!
//! For work that must be alone, such as to move memory behind its addresses. An operation that is nested in one that is
//! already inside passes, because the pause waits for the outer one. An operation of the thread that pauses passes, too.

use std::fmt;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use super::{CLOSED, Gate, GateGuard, PAUSED, nested};
use crate::per_thread::thread_number;
use crate::primitive::atomic::Ordering;
use crate::primitive::pause;
use crate::{fence, process};

/// How often a waiting thread looks whether the process is exiting: nothing wakes it then.
const EXIT_CHECK: Duration = Duration::from_millis(20);

/// The gate is paused until this is dropped. Counts as an operation inside: a [close](Gate::close) waits for it.
///
/// If it is forgotten, the gate stays paused.
#[derive(Debug)]
pub struct Paused<'a> {
    gate: &'a Gate,
    /// Keeps teardown out. Not `Send`, so the thread that pauses is the one that ends the pause.
    _inside: GateGuard<'a>,
}

/// Why a gate could not be paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseError {
    /// The gate is closed, or the process is exiting.
    Closed,
    /// Another thread pauses the gate, or the calling thread does already.
    Busy,
    /// Other threads were still inside at the deadline.
    TimedOut,
}

impl fmt::Display for PauseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "the gate is closed",
            Self::Busy => "the gate is already paused",
            Self::TimedOut => "operations of other threads did not end in time",
        })
    }
}

impl std::error::Error for PauseError {}

impl Gate {
    /// Stops operations of other threads until the returned value is dropped: they wait in [`enter`](Self::enter) and do
    /// not fail. Returns once all operations of other threads have left; those of the calling thread may be inside, and
    /// may enter.
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// let gate = cuguard_sync::Gate::default();
    /// let paused = gate.pause(Instant::now() + Duration::from_secs(1))?;
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| drop(gate.enter())); // Waits.
    ///     while paused.waiting() == 0 {
    ///         std::thread::yield_now();
    ///     }
    ///     drop(paused);
    /// });
    /// # Ok::<(), cuguard_sync::PauseError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`PauseError`]; the gate is then as it was. Where another thread pauses the gate, a thread that is inside fails at
    /// once, because the other one waits for it.
    pub fn pause(&self, until: Instant) -> Result<Paused<'_>, PauseError> {
        self.become_pauser(until)?;
        // From here on its drop ends the pause.
        let paused = Paused {
            gate: self,
            _inside: self.enter_closed(),
        };
        self.state.fetch_or(PAUSED, Ordering::SeqCst);
        fence::heavy();
        let mut turn = 0;
        loop {
            // Teardown waits for the operations inside, and this is one of them.
            if self.is_closed() || process::is_exiting() {
                return Err(PauseError::Closed);
            }
            if self.others_have_left() {
                return Ok(paused);
            }
            if Instant::now() >= until {
                return Err(PauseError::TimedOut);
            }
            pause(turn);
            turn += 1;
        }
    }

    /// Waits until no other thread pauses the gate.
    fn become_pauser(&self, until: Instant) -> Result<(), PauseError> {
        let this = thread_number();
        let mut turn = 0;
        loop {
            if self.is_closed() || process::is_exiting() {
                return Err(PauseError::Closed);
            }
            let order = (Ordering::Acquire, Ordering::Relaxed);
            let before = self.pauser.compare_exchange(0, this, order.0, order.1);
            let Err(other) = before else {
                return Ok(());
            };
            if other == this || self.own_count() > 0 || Instant::now() >= until {
                return Err(PauseError::Busy);
            }
            pause(turn);
            turn += 1;
        }
    }

    /// Whether the calling thread is inside. May be false where many threads share a slot.
    pub fn is_inside(&self) -> bool {
        self.own_count() > 0
    }

    /// How often the calling thread is inside, or less.
    fn own_count(&self) -> u64 {
        let slot = self.inside.slot();
        match slot.is_exclusive() {
            true => slot.value().count.load(Ordering::Relaxed),
            false => nested::count(slot.value().gate),
        }
    }

    /// Whether no thread but the calling one is inside.
    fn others_have_left(&self) -> bool {
        let (own, count) = (self.inside.slot(), self.own_count());
        self.inside.all().all(|slot| {
            let inside = slot.count.load(Ordering::Acquire);
            inside == 0 || std::ptr::eq(slot, own.value()) && inside == count
        })
    }

    /// The rest of [`enter`](Self::enter) where the gate is closed or paused.
    #[cold]
    #[inline(never)]
    pub(super) fn enter_stopped<'a>(&'a self, mut inside: GateGuard<'a>) -> Option<GateGuard<'a>> {
        loop {
            let state = self.state.load(Ordering::Acquire);
            if state & CLOSED != 0 {
                return None;
            }
            // A nested operation: while the outer one is inside, no pause begins.
            let passes =
                || self.own_count() > 1 || self.pauser.load(Ordering::Relaxed) == thread_number();
            if state & PAUSED == 0 || passes() {
                return Some(inside);
            }
            // The pause waits until it has left.
            drop(inside);
            if !self.wait_for_the_pause() {
                return None;
            }
            inside = self.enter_closed();
        }
    }

    /// Waits until the gate is not paused, or is closed. False where the process is exiting.
    fn wait_for_the_pause(&self) -> bool {
        // In a forked child, a thread that does not exist there may pause the gate or hold the lock.
        if process::is_exiting() {
            return false;
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        while self.state.load(Ordering::Acquire) == PAUSED && !process::is_exiting() {
            let waited = self.changed.wait_timeout(done, EXIT_CHECK);
            done = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(done);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        !process::is_exiting()
    }
}

impl Paused<'_> {
    /// How many threads wait until the pause ends.
    ///
    /// A host function of a stream may be among them. A thread that pauses a gate and waits for the device would then
    /// wait for itself.
    pub fn waiting(&self) -> usize {
        self.gate.waiting.load(Ordering::SeqCst)
    }
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        // With release ordering: what was done meanwhile happens before the next operation.
        self.gate.state.fetch_and(!PAUSED, Ordering::SeqCst);
        // After that: the next thread that pauses sets the flag again.
        self.gate.pauser.store(0, Ordering::Release);
        // In a forked child no thread waits, and one that does not exist there may hold the lock.
        if !process::is_forked() {
            self.gate.wake();
        }
    }
}

#[cfg(all(test, not(cuguard_loom)))]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::{Gate, PauseError};
    use crate::per_thread::SLOTS;

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(5)
    }

    fn late() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    /// Threads with slots of their own, and others that share one, enter and nest. While the gate is paused, none is
    /// inside; no operation fails.
    #[test]
    fn a_pause_is_alone_and_fails_no_operation() {
        let (gate, over) = (Gate::default(), AtomicBool::new(false));
        let (alone, passed) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            for _ in 0..SLOTS + 8 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        let outer = gate.enter().expect("never closed");
                        assert!(!alone.load(Ordering::Relaxed));
                        thread::yield_now();
                        let inner = gate.enter().expect("never closed");
                        drop(outer);
                        assert!(!alone.load(Ordering::Relaxed));
                        drop(inner);
                        passed.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            for _ in 0..100 {
                let before = passed.load(Ordering::Relaxed);
                let paused = gate.pause(late()).expect("operations end");
                alone.store(true, Ordering::Relaxed);
                drop(gate.enter().expect("the thread that pauses"));
                thread::yield_now();
                alone.store(false, Ordering::Relaxed);
                drop(paused);
                while passed.load(Ordering::Relaxed) == before {
                    thread::yield_now();
                }
            }
            over.store(true, Ordering::Relaxed);
        });
    }

    /// The gate stays open to all when a pause has failed.
    #[test]
    fn a_pause_ends_at_its_deadline() {
        let gate = Gate::default();
        let inside = gate.enter().expect("open");
        thread::scope(|scope| {
            let pausing = scope.spawn(|| gate.pause(soon()).map(drop));
            assert_eq!(pausing.join().unwrap(), Err(PauseError::TimedOut));
            scope.spawn(|| drop(gate.enter().expect("open")));
        });
        drop(inside);
        drop(gate.pause(soon()).expect("empty"));
    }

    /// An operation that is nested in one that is inside passes, so that the pause gets its turn.
    #[test]
    fn a_nested_operation_passes() {
        let gate = Gate::default();
        let inside = gate.enter().expect("open");
        thread::scope(|scope| {
            let pausing = scope.spawn(|| gate.pause(late()).map(|paused| paused.waiting()));
            while gate.state.load(Ordering::Relaxed) == super::super::OPEN {
                thread::yield_now();
            }
            drop(gate.enter().expect("nested"));
            drop(inside);
            assert_eq!(pausing.join().unwrap(), Ok(0));
        });
    }

    #[test]
    fn a_thread_inside_can_pause_and_enter() {
        let gate = Gate::default();
        let inside = gate.enter().expect("open");
        let paused = gate
            .pause(soon())
            .expect("the only operation is the caller's");
        drop(inside);
        drop(gate.enter().expect("the caller's"));
        assert_eq!(gate.pause(late()).map(drop), Err(PauseError::Busy));
        thread::scope(|scope| {
            let other = scope.spawn(|| gate.pause(soon()).map(drop));
            assert_eq!(other.join().unwrap(), Err(PauseError::Busy));
        });
        drop(paused);
        drop(gate.pause(soon()).expect("not paused any more"));
    }

    /// Two threads inside that both pause would wait for each other.
    #[test]
    fn the_second_of_two_threads_inside_fails_at_once() {
        let gate = Gate::default();
        let inside = gate.enter().expect("open");
        thread::scope(|scope| {
            let first = scope.spawn(|| {
                let _inside = gate.enter().expect("open");
                gate.pause(late()).map(drop)
            });
            while gate.state.load(Ordering::Relaxed) == super::super::OPEN {
                thread::yield_now();
            }
            // If it waited, the first one would reach its deadline.
            assert_eq!(gate.pause(late()).map(drop), Err(PauseError::Busy));
            drop(inside);
            assert_eq!(first.join().unwrap(), Ok(()));
        });
    }

    #[test]
    fn a_waiting_thread_fails_when_the_gate_is_closed_and_close_waits_for_the_pause() {
        let (gate, ended) = (Gate::default(), AtomicBool::new(false));
        let paused = gate.pause(late()).expect("empty");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| gate.enter().is_none());
            while paused.waiting() == 0 {
                thread::yield_now();
            }
            let closing = scope.spawn(|| gate.close() && ended.load(Ordering::Relaxed));
            assert!(waiting.join().unwrap());
            ended.store(true, Ordering::Relaxed);
            drop(paused);
            assert!(closing.join().unwrap());
        });
        assert_eq!(gate.pause(late()).map(drop), Err(PauseError::Closed));
    }

    /// The thread that pauses does not exist in a forked child.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_forked_child_does_not_wait() {
        let gate = Gate::default();
        let (paused, over) = (AtomicBool::new(false), AtomicBool::new(false));
        thread::scope(|scope| {
            drop(gate.enter().expect("open"));
            scope.spawn(|| {
                let held = gate.pause(late()).expect("empty");
                paused.store(true, Ordering::Relaxed);
                while !over.load(Ordering::Relaxed) {
                    thread::yield_now();
                }
                drop(held);
            });
            while !paused.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            // SAFETY: the child calls what locks and allocates nothing, and ends.
            let status = unsafe {
                let child = libc::fork();
                if child == 0 {
                    libc::alarm(20);
                    crate::process::mark_forked();
                    let failed = gate.enter().is_none() && gate.pause(late()).is_err();
                    libc::_exit(i32::from(!failed));
                }
                let mut status = -1;
                libc::waitpid(child, &raw mut status, 0);
                status
            };
            over.store(true, Ordering::Relaxed);
            assert_eq!(status, 0);
        });
    }
}
