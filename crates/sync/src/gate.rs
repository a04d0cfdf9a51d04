//! The gate of a context: operations enter and leave, and teardown closes it for good.
//!
//! ```text
//!     an operation             teardown
//!     ------------             --------
//!     inside += 1              closed = true
//!     closed? then leave       inside == 0 in every slot? else wait
//! ```
//!
//! Each side writes first and then reads, with a [barrier](crate::fence) between. So either the operation sees
//! that the gate is closed, or teardown sees the operation inside. An operation that finds the gate closed fails and
//! does not wait: an operation nested in another cannot deadlock with a teardown that waits for the outer one.

use std::sync::PoisonError;
use std::time::Instant;

use crate::fence;
use crate::per_thread::{PerThread, Slot};
use crate::primitive::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::primitive::{Condvar, Mutex, pause};

/// Counts the operations that are inside; teardown closes it and waits for them.
#[derive(Debug)]
pub struct Gate {
    closed: AtomicBool,
    /// How many operations are inside, per thread slot.
    inside: PerThread<AtomicU64>,
    /// Teardown is done.
    done: Mutex<bool>,
    changed: Condvar,
}

/// Inside the gate until dropped.
#[derive(Debug)]
pub struct GateGuard<'a> {
    slot: Slot<'a, AtomicU64>,
}

impl Default for Gate {
    fn default() -> Self {
        fence::prepare();
        Self {
            closed: AtomicBool::new(false),
            inside: PerThread::default(),
            done: Mutex::new(false),
            changed: Condvar::new(),
        }
    }
}

impl Gate {
    /// Enters; `None` if the gate is closed.
    #[inline]
    pub fn enter(&self) -> Option<GateGuard<'_>> {
        // Dropped, which leaves again, if the gate is closed.
        let inside = self.enter_closed();
        (!self.closed.load(Ordering::Acquire)).then_some(inside)
    }

    /// Enters whether or not the gate is closed. For teardown itself, which the exit handler waits for as for any
    /// operation.
    #[inline]
    pub fn enter_closed(&self) -> GateGuard<'_> {
        let slot = self.inside.slot();
        slot.increment();
        fence::light();
        GateGuard { slot }
    }

    /// Whether it is closed, or about to be.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Closes the gate and waits until it is empty. False if it was closed before.
    pub fn close(&self) -> bool {
        if self.closed.swap(true, Ordering::SeqCst) {
            return false;
        }
        fence::heavy();
        let mut turn = 0;
        while !self.is_empty() {
            pause(turn);
            turn += 1;
        }
        true
    }

    /// Whether all operations that entered before the gate was closed have left.
    fn is_empty(&self) -> bool {
        self.inside
            .all()
            .all(|slot| slot.load(Ordering::Acquire) == 0)
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
        // A release store: what was done inside happens before teardown continues.
        self.slot.decrement();
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
