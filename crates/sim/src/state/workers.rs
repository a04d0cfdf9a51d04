//! The worker threads, which execute the work of streams.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::lock::{StateGuard, abort_after_panic, lock};
use crate::handle::Id;
use crate::stderr;
use crate::streams::WORK_READY;

/// How long an idle thread waits for work before it ends.
const IDLE_TIMEOUT: Duration = Duration::from_millis(50);

pub(crate) fn thread_main() {
    let work = AssertUnwindSafe(|| {
        let mut state = lock();
        state.workers.starting -= 1;
        loop {
            if let Some(stream) = state.workers.ready.pop_front() {
                state = run_next(state, stream);
                state.clean_up();
                continue;
            }
            state.workers.idle += 1;
            state = state.wait(&WORK_READY, Some(IDLE_TIMEOUT), |state| {
                !state.workers.ready.is_empty()
            });
            state.workers.idle -= 1;
            if state.workers.ready.is_empty() {
                state.workers.total -= 1;
                return;
            }
        }
    });
    if let Err(panic) = catch_unwind(work) {
        // A test harness may have captured the message of the panic itself.
        let owned = panic.downcast_ref::<String>().map(String::as_str);
        if let Some(message) = owned.or_else(|| panic.downcast_ref::<&str>().copied()) {
            stderr::print_line(message);
        }
        abort_after_panic();
    }
}

/// Executes queued work on the calling thread if no worker thread exists, because none could be
/// spawned.
pub(crate) fn run_without_workers(mut state: StateGuard) -> StateGuard {
    while state.workers.total == 0
        && let Some(stream) = state.workers.ready.pop_front()
    {
        state = run_next(state, stream);
    }
    state
}

/// Executes the next work of a stream.
fn run_next(mut state: StateGuard, stream: Id) -> StateGuard {
    let latency = state.config.latency;
    let Some(work) = state.begin_work(stream) else {
        return state;
    };
    drop(state);
    if !latency.is_zero() {
        std::thread::sleep(latency);
    }
    // Drops its references to memory blocks, before the work counts as complete.
    if let Some(run) = work.run {
        run();
    }
    let mut state = lock();
    state.complete(stream, work.number, work.on_complete);
    state
}
