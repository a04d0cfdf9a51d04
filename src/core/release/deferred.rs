//! Deferred frees and teardowns.
//!
//! Inside a stream's host function every driver call fails with `CUDA_ERROR_NOT_PERMITTED`, frees included. A guard
//! that is dropped there is queued. The next operation that may wait for the device and begins outside of a host
//! function, in any context, runs the queue. (Other operations must not wait, and a free or a teardown may wait.) Until
//! then the resource is live and keeps its context open.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use cuguard_driver::result;
use cuguard_driver::sys::CUresult;

use crate::core::shared::context_state::{ContextState, Entered};
use crate::core::shared::lock::{self, FlagGuard};
use crate::core::shared::open_contexts;
use crate::error::{Error, Result};
use cuguard_sync::process;

/// What is deferred: to free a resource, or to tear down a context that nothing keeps open.
pub(in crate::core) trait Deferred: Send {
    /// Outside of host functions.
    fn run(self: Box<Self>);

    /// At exit: nothing is freed any more, and nothing of it is a leak.
    fn abandon(self: Box<Self>);
}

#[derive(Default)]
struct Queue {
    frees: VecDeque<Box<dyn Deferred>>,
    /// After the frees, because they may take long.
    teardowns: VecDeque<Box<dyn Deferred>>,
}

static QUEUE: Mutex<Queue> = Mutex::new(Queue {
    frees: VecDeque::new(),
    teardowns: VecDeque::new(),
});

fn lock() -> MutexGuard<'static, Queue> {
    lock::lock(&QUEUE)
}

impl Queue {
    fn len(&self) -> usize {
        self.frees.len() + self.teardowns.len()
    }

    fn pop(&mut self) -> Option<Box<dyn Deferred>> {
        let item = self.frees.pop_front();
        let item = item.or_else(|| self.teardowns.pop_front());
        if self.len() == 0 {
            process::set_deferred(false);
        }
        item
    }
}

/// Whether an error means that the driver permits no call now.
pub(crate) fn is_not_permitted(error: &Error) -> bool {
    error.code() == Some(CUresult::NOT_PERMITTED)
}

/// Whether the calling thread is inside a host function. The caller is inside a gate, so that the process does not
/// exit meanwhile.
pub(crate) fn in_host_function() -> bool {
    result::context::current().is_err_and(|error| error.code == CUresult::NOT_PERMITTED)
}

/// Queues a free.
pub(in crate::core) fn push_free(item: Box<dyn Deferred>) {
    push(item, |queue| &mut queue.frees);
}

/// Queues a teardown.
pub(in crate::core) fn push_teardown(item: Box<dyn Deferred>) {
    push(item, |queue| &mut queue.teardowns);
}

fn push(item: Box<dyn Deferred>, list: fn(&mut Queue) -> &mut VecDeque<Box<dyn Deferred>>) {
    if process::is_exiting() {
        // Nothing is freed at exit, and in a forked child a thread that does not exist may hold the lock.
        return std::mem::forget(item);
    }
    let mut queue = lock();
    list(&mut queue).push_back(item);
    // Under the lock, as `pop` clears it.
    process::set_deferred(true);
}

/// Drops the queue at exit.
pub(crate) fn abandon() {
    let queue = std::mem::take(&mut *lock());
    for item in queue.frees.into_iter().chain(queue.teardowns) {
        item.abandon();
    }
}

thread_local! {
    static RUNNING: Cell<bool> = const { Cell::new(false) };
}

/// Runs the queue, unless this is a host function too. Called where an operation begins that may wait for the device.
/// The caller must hold no lock of this crate, because contexts may be torn down here. Returns whether anything was
/// queued.
#[inline]
pub(crate) fn run() -> bool {
    !process::is_ordinary() && run_now()
}

/// Items that threads have taken out of the queue and not dealt with yet.
static TAKEN: AtomicUsize = AtomicUsize::new(0);

/// Counts one of [`TAKEN`] until it is dropped.
struct Taken;

impl Drop for Taken {
    fn drop(&mut self) {
        TAKEN.fetch_sub(1, Ordering::Release);
    }
}

/// The next item. Counted before the lock is released, so that the queue is never empty while an item is not counted.
fn take() -> (Option<Box<dyn Deferred>>, Taken) {
    let mut queue = lock();
    TAKEN.fetch_add(1, Ordering::Relaxed);
    (queue.pop(), Taken)
}

/// Runs the queue, and waits for what other threads have taken out of it, `most` at most.
pub(crate) fn finish(most: Duration) {
    run();
    // Taken by another thread before this one has locked the queue, or it is empty.
    drop(lock());
    let begin = Instant::now();
    while TAKEN.load(Ordering::Acquire) != 0 && !RUNNING.get() && begin.elapsed() < most {
        thread::sleep(Duration::from_micros(50));
    }
}

#[cold]
#[inline(never)]
fn run_now() -> bool {
    // Not nested: a logger that a teardown calls may get here, and would recurse as deep as the queue is long.
    let running = FlagGuard::set(&RUNNING);
    if running.was_set {
        return false;
    }
    // The exit handler waits for this.
    let Ok(_inside) = open_contexts::enter_process("drop") else {
        return false;
    };
    if in_host_function() {
        return false;
    }
    // Items that are queued meanwhile are for the next operation. Items are taken one by one, so that other threads
    // can help and the exit handler sees the rest.
    let count = lock().len();
    for _ in 0..count {
        let (item, _taken) = take();
        let Some(item) = item else {
            break;
        };
        item.run();
    }
    count != 0
}

impl ContextState {
    /// Begins an operation that may wait for the device, and so runs deferred frees first.
    #[inline]
    pub(crate) fn enter_to_wait(&self, operation: &'static str) -> Result<Entered<'_>> {
        run();
        self.enter(operation)
    }
}
