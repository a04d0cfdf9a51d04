//! The gate of a context: operations pass in and out, and teardown closes it for good.
//!
//! ```text
//!     an operation           teardown
//!     ------------           --------
//!     inside += 1            closed = true
//!     closed? then out       inside == 0 in every lane? else wait
//! ```
//!
//! Each writes first and reads then, with a [barrier](crate::fence) between. So either the operation
//! sees that the gate is closed, or teardown sees that somebody is inside. Nobody who comes to a
//! closed gate waits: an operation within another one can never be in the way of a teardown that
//! waits for the outer one.

use std::sync::PoisonError;
use std::time::Instant;

use crate::fence;
use crate::per_thread::{PerThread, Slot};
use crate::primitive::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::primitive::{Condvar, Mutex, pause};

/// Counts the operations that are inside; teardown closes it, and waits for them.
#[derive(Debug)]
pub struct Gate {
    closed: AtomicBool,
    /// How many operations of each lane are inside.
    inside: PerThread<AtomicU64>,
    /// What teardown had to do is done.
    done: Mutex<bool>,
    changed: Condvar,
}

/// Inside the gate until this goes.
#[derive(Debug)]
pub struct GateGuard<'a> {
    lane: Slot<'a, AtomicU64>,
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
    /// Passes in; `None` where the gate is closed.
    #[inline]
    pub fn enter(&self) -> Option<GateGuard<'_>> {
        let lane = self.inside.slot();
        lane.increment();
        fence::light();
        // Goes out again where the gate is closed.
        let inside = GateGuard { lane };
        (!self.closed.load(Ordering::Acquire)).then_some(inside)
    }

    /// Counts the caller as inside, whatever the gate is. For teardown itself, which the end of the
    /// process must wait for like for any operation.
    pub fn count_in(&self) -> GateGuard<'_> {
        let lane = self.inside.slot();
        lane.increment();
        fence::light();
        GateGuard { lane }
    }

    /// Whether it is closed, or about to be.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Closes the gate and waits until everybody is out. False where it was closed before.
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

    /// Whether nobody is inside, of those who came before the gate was closed.
    fn is_empty(&self) -> bool {
        self.inside
            .all()
            .all(|lane| lane.load(Ordering::Acquire) == 0)
    }

    /// Waits a little until nobody is inside. For the end of the process, where operations that
    /// are under way should end, and cannot be waited for if they do not. Those who come later must
    /// have something to see that sends them away, written before a [heavy](fence::heavy) barrier.
    pub fn drain(&self, until: Instant) {
        while !self.is_empty() && Instant::now() < until {
            pause(u32::MAX);
        }
    }

    /// Says that teardown is done.
    pub fn finish(&self) {
        *self.done.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Waits until teardown is done. Must not be called inside the gate, nor by teardown itself.
    pub fn wait_for_teardown(&self) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        while !*done {
            done = self
                .changed
                .wait(done)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The same, for a while. False where it is not done then.
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
        // What was done inside happens before teardown goes on.
        self.lane.decrement();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use super::Gate;

    #[test]
    fn a_closed_gate_lets_nobody_in() {
        let gate = Gate::default();
        drop(gate.enter().expect("open"));
        assert!(gate.close());
        assert!(gate.enter().is_none() && gate.is_closed());
        assert!(!gate.close());
    }

    /// Threads go in and out; once `close` has returned, nobody is inside any more.
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
            // Who is inside comes to a closed gate and does not wait.
            assert!(gate.enter().is_none());
            gate.drain(Instant::now() + Duration::from_millis(5));
            out.store(true, Ordering::Relaxed);
            drop(inside);
            gate.wait_for_teardown();
        });
    }
}
