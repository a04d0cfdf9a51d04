//! The gate of a context: operations enter and leave, teardown closes it for good, and compaction pauses it.
//!
//! ```text
//!     an operation             teardown, a pause
//!     ------------             -----------------
//!     inside += 1              state = closed, or paused
//!     stopped? then leave      inside == 0 in every slot? else wait
//! ```
//!
//! Each side writes first and then reads, with a [barrier](crate::fence) between. So either the operation sees
//! that the gate is closed, or teardown sees the operation inside. An operation that finds the gate closed fails and
//! does not wait: an operation nested in another cannot deadlock with a teardown that waits for the outer one. One that
//! finds the gate [paused](Gate::pause) waits, unless it is nested.

mod nested;
mod pause;

use std::sync::PoisonError;
use std::time::Instant;

use crate::fence;
use crate::per_thread::{PerThread, Slot};
use crate::primitive::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::primitive::{Condvar, Mutex, pause};

pub use pause::{PauseError, Paused};

/// The state of a gate that operations enter.
const OPEN: u32 = 0;
/// Teardown has closed the gate, for good.
const CLOSED: u32 = 1;
/// A thread has paused the gate.
const PAUSED: u32 = 2;

/// Counts the operations that are inside; teardown closes it and waits for them.
#[derive(Debug)]
pub struct Gate {
    /// [`OPEN`], or [`CLOSED`] and [`PAUSED`]: one word, so that an operation tests both with one load.
    state: AtomicU32,
    /// How many operations are inside, per thread slot.
    inside: PerThread<Inside>,
    /// The [number](crate::per_thread::thread_number) of the thread that pauses the gate, or 0.
    pauser: AtomicU64,
    /// How many threads wait until the pause ends.
    waiting: AtomicUsize,
    /// Teardown is done. Also locked to end a pause, so that no waiting thread misses that.
    done: Mutex<bool>,
    changed: Condvar,
}

/// The operations of one slot.
#[derive(Debug)]
struct Inside {
    count: AtomicU64,
    /// The gate's number, for threads that share the slot.
    gate: u64,
}

/// Inside the gate until dropped.
#[derive(Debug)]
pub struct GateGuard<'a> {
    slot: Slot<'a, Inside>,
}

impl Default for Gate {
    fn default() -> Self {
        fence::prepare();
        let gate = nested::next_gate();
        Self {
            state: AtomicU32::new(OPEN),
            inside: PerThread::from_fn(|| Inside {
                count: AtomicU64::new(0),
                gate,
            }),
            pauser: AtomicU64::new(0),
            waiting: AtomicUsize::new(0),
            done: Mutex::new(false),
            changed: Condvar::new(),
        }
    }
}

impl Gate {
    /// Enters; `None` if the gate is closed. Waits while another thread [pauses](Self::pause) the gate, unless the calling
    /// thread is already inside.
    #[inline]
    pub fn enter(&self) -> Option<GateGuard<'_>> {
        let inside = self.enter_closed();
        match self.state.load(Ordering::Acquire) {
            OPEN => Some(inside),
            _ => self.enter_stopped(inside),
        }
    }

    /// Enters whether or not the gate is closed or paused. For teardown itself, which the exit handler waits for as for
    /// any operation.
    #[inline]
    pub fn enter_closed(&self) -> GateGuard<'_> {
        let slot = self.inside.slot();
        slot.add(|inside| &inside.count, 1);
        if !slot.is_exclusive() {
            nested::enter(slot.value().gate);
        }
        fence::light();
        GateGuard { slot }
    }

    /// Whether it is closed, or about to be.
    pub fn is_closed(&self) -> bool {
        self.state.load(Ordering::SeqCst) & CLOSED != 0
    }

    /// Closes the gate and waits until it is empty, also until a pause ends. False if it was closed before.
    pub fn close(&self) -> bool {
        let before = self.state.fetch_or(CLOSED, Ordering::SeqCst);
        if before & CLOSED != 0 {
            return false;
        }
        if before & PAUSED != 0 {
            self.wake();
        }
        fence::heavy();
        let mut turn = 0;
        while !self.is_empty() {
            pause(turn);
            turn += 1;
        }
        true
    }

    /// Wakes the threads that wait, once the state has changed.
    fn wake(&self) {
        // A thread that has read the old state waits once the lock is free, and not later.
        drop(self.done.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }

    /// Whether all operations that entered before the gate was closed have left.
    fn is_empty(&self) -> bool {
        self.inside
            .all()
            .all(|slot| slot.count.load(Ordering::Acquire) == 0)
    }

    /// Waits until the gate is empty, at most until `until`. For the exit handler, which cannot wait longer. What
    /// turns later operations away must be written before a [heavy](fence::heavy) barrier that precedes this.
    pub fn drain(&self, until: Instant) {
        while !self.is_empty() && Instant::now() < until {
            pause(u32::MAX);
        }
    }

    /// Teardown is done.
    pub fn finish(&self) {
        *self.done.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Waits until teardown is done. Not to be called inside the gate, nor by teardown.
    pub fn wait_for_teardown(&self) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        while !*done {
            let waited = self.changed.wait(done);
            done = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The same, at most until `until`. Returns whether teardown is done.
    pub fn wait_for_teardown_until(&self, until: Instant) -> bool {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        while !*done {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let waited = self.changed.wait_timeout(done, left);
            done = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }
}

impl Drop for GateGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        if !self.slot.is_exclusive() {
            nested::leave(self.slot.value().gate);
        }
        // A release store: what was done inside happens before teardown continues.
        self.slot.subtract(|inside| &inside.count, 1);
    }
}

#[cfg(all(test, not(cuguard_loom)))]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::Gate;

    #[test]
    fn a_closed_gate_refuses_entry() {
        let gate = Gate::default();
        drop(gate.enter().expect("open"));
        assert!(!gate.is_closed());
        assert!(gate.close());
        assert!(gate.enter().is_none() && gate.is_closed());
        assert!(!gate.close());
    }

    /// Threads enter and leave; once `close` has returned, none is inside.
    #[test]
    fn nobody_is_inside_once_it_is_closed() {
        for _ in 0..200 {
            let (gate, over) = (Gate::default(), AtomicBool::new(false));
            let passed = AtomicU64::new(0);
            thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        while let Some(inside) = gate.enter() {
                            assert!(!over.load(Ordering::Relaxed));
                            passed.fetch_add(1, Ordering::Relaxed);
                            drop(inside);
                        }
                    });
                }
                while passed.load(Ordering::Relaxed) < 20 {
                    std::hint::spin_loop();
                }
                assert!(gate.close());
                over.store(true, Ordering::Relaxed);
            });
        }
    }

    #[test]
    fn closing_waits_for_who_is_inside_and_others_wait_for_teardown() {
        let gate = Gate::default();
        let out = AtomicBool::new(false);
        let inside = gate.enter().expect("open");
        thread::scope(|scope| {
            scope.spawn(|| {
                assert!(gate.close());
                assert!(out.load(Ordering::Relaxed));
                gate.finish();
            });
            while !gate.is_closed() {
                thread::yield_now();
            }
            // A nested operation finds the gate closed and does not wait.
            assert!(gate.enter().is_none());
            out.store(true, Ordering::Relaxed);
            drop(inside);
            gate.wait_for_teardown();
        });
    }

    /// As long as an operation is inside until the time is up, and no longer than that or than it is inside.
    #[test]
    fn draining_waits_for_who_is_inside_until_the_time_is_up() {
        let gate = Gate::default();
        let inside = gate.enter().expect("open");
        let until = Instant::now() + Duration::from_millis(5);
        gate.drain(until);
        assert!(Instant::now() >= until);
        drop(inside);
        let begin = Instant::now();
        gate.drain(begin + Duration::from_secs(60));
        assert!(begin.elapsed() < Duration::from_secs(30));
    }
}
