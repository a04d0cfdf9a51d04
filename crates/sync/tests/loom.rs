//! Every order in which threads can run through the gate and the biased lock, by loom, on their own source:
//!
//!     RUSTFLAGS="--cfg cuguard_loom" cargo test -p cuguard-sync --release --test loom
//!
//! loom knows ordinary barriers only: that the asymmetric barrier of `fence` has the same effect is tested on the real
//! processor, in `fence.rs`.

#![cfg(cuguard_loom)]

use std::time::{Duration, Instant};

use cuguard_sync::{Biased, Gate, PauseError, PerThread, fence};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use loom::thread;

/// Stands for the driver's context: operations use it, teardown destroys it. loom fails where both happen at once.
struct Context {
    gate: Gate,
    alive: UnsafeCell<bool>,
}

// SAFETY: what the tests show.
unsafe impl Sync for Context {}
// SAFETY: plain data.
unsafe impl Send for Context {}

impl Context {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            gate: Gate::default(),
            alive: UnsafeCell::new(true),
        })
    }

    fn operation(&self) {
        if let Some(_inside) = self.gate.enter() {
            // SAFETY: loom checks that no other thread writes meanwhile.
            assert!(self.alive.with(|alive| unsafe { *alive }));
        }
    }

    fn tear_down(&self) -> bool {
        let is_first = self.gate.close();
        if is_first {
            // SAFETY: loom checks that no other thread reads or writes meanwhile.
            self.alive.with_mut(|alive| unsafe { *alive = false });
            self.gate.finish();
        }
        is_first
    }
}

#[test]
fn teardown_is_alone() {
    loom::model(|| {
        let context = Context::new();
        let operation = thread::spawn({
            let context = context.clone();
            move || {
                context.operation();
                context.operation();
            }
        });
        assert!(context.tear_down());
        operation.join().unwrap();
        assert!(context.gate.is_closed() && context.gate.enter().is_none());
    });
}

#[test]
fn two_operations_and_a_teardown() {
    loom::model(|| {
        let context = Context::new();
        let operations = [(); 2].map(|()| {
            let context = context.clone();
            thread::spawn(move || context.operation())
        });
        context.tear_down();
        operations
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
    });
}

#[test]
fn one_of_two_teardowns_is_first_and_the_other_can_wait() {
    loom::model(|| {
        let context = Context::new();
        let other = thread::spawn({
            let context = context.clone();
            move || {
                let is_first = context.tear_down();
                context.gate.wait_for_teardown();
                // SAFETY: loom checks that no other thread writes meanwhile.
                assert!(!context.alive.with(|alive| unsafe { *alive }));
                is_first
            }
        });
        let is_first = context.tear_down();
        assert_ne!(other.join().unwrap(), is_first);
    });
}

/// The exit handler sets a flag, and then waits until the gate is empty: an operation that does not see the flag is
/// seen inside.
#[test]
fn the_exit_handler_is_alone() {
    loom::model(|| {
        let context = Context::new();
        let exiting = Arc::new(AtomicBool::new(false));
        let operation = thread::spawn({
            let (context, exiting) = (context.clone(), exiting.clone());
            move || {
                let inside = context.gate.enter();
                if inside.is_some() && !exiting.load(Ordering::SeqCst) {
                    // SAFETY: loom checks that no other thread writes meanwhile.
                    assert!(context.alive.with(|alive| unsafe { *alive }));
                }
            }
        });
        exiting.store(true, Ordering::SeqCst);
        fence::heavy();
        context
            .gate
            .drain(Instant::now() + Duration::from_secs(3600));
        // SAFETY: loom checks that no other thread reads or writes meanwhile.
        context.alive.with_mut(|alive| unsafe { *alive = false });
        operation.join().unwrap();
    });
}

/// A deadline that no run reaches.
fn late() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

impl Context {
    /// Stands for compaction: what it changes, operations read.
    fn pause_and_write(&self) -> Result<(), PauseError> {
        let _paused = self.gate.pause(late())?;
        // SAFETY: loom checks that no other thread reads or writes meanwhile.
        self.alive.with_mut(|alive| unsafe { *alive = true });
        Ok(())
    }
}

/// Operations wait for a pause, do not fail, and see what was done in it.
#[test]
fn a_pause_is_alone() {
    loom::model(|| {
        let context = Context::new();
        let operation = thread::spawn({
            let context = context.clone();
            move || {
                let inside = context.gate.enter().expect("never closed");
                // SAFETY: loom checks that no other thread writes meanwhile.
                context.alive.with(|alive| unsafe { *alive });
                drop(inside);
            }
        });
        assert_eq!(context.pause_and_write(), Ok(()));
        operation.join().unwrap();
        context.operation();
    });
}

/// A pause waits for the outer operation and lets the inner one pass.
#[test]
fn a_nested_operation_passes_a_pause() {
    loom::model(|| {
        let context = Context::new();
        let operation = thread::spawn({
            let context = context.clone();
            move || {
                let outer = context.gate.enter().expect("never closed");
                let inner = context.gate.enter().expect("never closed");
                drop(outer);
                // SAFETY: loom checks that no other thread writes meanwhile.
                context.alive.with(|alive| unsafe { *alive });
                drop(inner);
            }
        });
        assert_eq!(context.pause_and_write(), Ok(()));
        operation.join().unwrap();
    });
}

/// Two pauses, one after the other, whichever is first.
#[test]
fn pauses_exclude_each_other() {
    loom::model(|| {
        let context = Context::new();
        let other = thread::spawn({
            let context = context.clone();
            move || context.pause_and_write()
        });
        assert_eq!(context.pause_and_write(), Ok(()));
        assert_eq!(other.join().unwrap(), Ok(()));
        context.operation();
    });
}

/// A thread that waits in front of a paused gate gets its turn or fails, however the pause and teardown overlap; teardown
/// is alone.
#[test]
fn a_pause_an_operation_and_a_teardown() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let context = Context::new();
        let operation = thread::spawn({
            let context = context.clone();
            move || context.operation()
        });
        let pausing = thread::spawn({
            let context = context.clone();
            move || context.pause_and_write()
        });
        assert!(context.tear_down());
        operation.join().unwrap();
        assert!(matches!(
            pausing.join().unwrap(),
            Ok(()) | Err(PauseError::Closed)
        ));
    });
}

/// A pause that fails lets operations in again.
#[test]
fn a_pause_that_reaches_its_deadline_stops_no_operation() {
    loom::model(|| {
        let context = Context::new();
        let inside = context.gate.enter();
        let pausing = thread::spawn({
            let context = context.clone();
            move || context.gate.pause(Instant::now()).map(drop)
        });
        let operation = thread::spawn({
            let context = context.clone();
            move || assert!(context.gate.enter().is_some())
        });
        assert_eq!(pausing.join().unwrap(), Err(PauseError::TimedOut));
        operation.join().unwrap();
        drop(inside);
    });
}

/// Loom fails where two threads access the value at once, or one does not see what another one wrote.
type Value = Biased<UnsafeCell<u32>>;

fn add(value: &UnsafeCell<u32>) {
    // SAFETY: loom checks that no other thread reads or writes meanwhile.
    value.with_mut(|number| unsafe { *number += 1 });
}

/// Owned by the calling thread.
fn new_value() -> Arc<Value> {
    Arc::new(Biased::new(UnsafeCell::new(0)))
}

fn check(value: &Value, expected: u32) {
    let value = value.lock().expect("no thread is inside");
    // SAFETY: loom checks that no other thread writes meanwhile.
    assert_eq!(value.with(|number| unsafe { *number }), expected);
}

fn add_on_another_thread(value: &Arc<Value>) -> thread::JoinHandle<()> {
    let value = value.clone();
    thread::spawn(move || {
        assert!(value.enter().is_none(), "not the owner");
        add(&value.lock().expect("not inside"));
    })
}

#[test]
fn the_owner_of_a_biased_lock_and_another_thread() {
    loom::model(|| {
        let value = new_value();
        let other = add_on_another_thread(&value);
        let inside = value.enter().expect("the owner");
        assert!(value.enter().is_none(), "already inside");
        add(&inside);
        drop(inside);
        other.join().unwrap();
        check(&value, 2);
    });
}

/// The owner does something else where it would have to wait.
#[test]
fn the_owner_tries_to_enter_a_biased_lock() {
    loom::model(|| {
        let value = new_value();
        let other = add_on_another_thread(&value);
        let mut entered = 0;
        for _ in 0..2 {
            if let Some(inside) = value.try_enter() {
                assert!(value.try_enter().is_none(), "already inside");
                add(&inside);
                entered += 1;
            }
        }
        other.join().unwrap();
        check(&value, 1 + entered);
        assert!(value.try_enter().is_some(), "no other thread has it");
    });
}

/// While the owner is out: loom does not get past three threads that all spin. The unit tests have those.
#[test]
fn two_other_threads_at_a_biased_lock() {
    loom::model(|| {
        let value = new_value();
        add(&value.enter().expect("the owner"));
        let others = [(); 2].map(|()| add_on_another_thread(&value));
        others.into_iter().for_each(|thread| thread.join().unwrap());
        add(&value.enter().expect("the owner"));
        check(&value, 4);
    });
}

/// The owner ends, with or without a release, while another thread takes the lock.
#[test]
fn the_owner_of_a_biased_lock_ends() {
    for releases in [false, true] {
        loom::model(move || {
            let value = new_value();
            let other = add_on_another_thread(&value);
            add(&value.enter().expect("the owner"));
            assert!(!releases || value.release() && value.enter().is_none());
            other.join().unwrap();
            check(&value, 2);
        });
    }
}

/// What one thread counts.
#[derive(Default)]
struct Counted {
    allocated: AtomicU64,
    freed: AtomicU64,
}

/// Who reads what was freed, and then what was allocated, never reads a free without its allocation. One thread allocates and
/// frees, or another one frees.
#[test]
fn no_sum_has_a_free_without_its_allocation() {
    loom::model(|| {
        let counted = Arc::new(PerThread::<Counted>::default());
        let handed = Arc::new(AtomicBool::new(false));
        let first = thread::spawn({
            let (counted, handed) = (counted.clone(), handed.clone());
            move || {
                let slot = counted.slot();
                slot.add(|one| &one.allocated, 1);
                slot.add_release(|one| &one.freed, 1);
                slot.add(|one| &one.allocated, 1);
                handed.store(true, Ordering::Release);
            }
        });
        let second = thread::spawn({
            let counted = counted.clone();
            move || {
                if handed.load(Ordering::Acquire) {
                    counted.slot().add_release(|one| &one.freed, 1);
                }
            }
        });
        let sum = |counter: fn(&Counted) -> &AtomicU64| {
            let all = counted.all();
            all.map(|one| counter(one).load(Ordering::Acquire))
                .sum::<u64>()
        };
        let freed = sum(|one| &one.freed);
        assert!(freed <= sum(|one| &one.allocated));
        first.join().unwrap();
        second.join().unwrap();
    });
}
