//! What host threads wait for: a stream, an event, a context, memory that work in flight uses.

use std::sync::Arc;

use super::lock::{StateGuard, lock};
use super::memory::MEMORY_UNUSED;
use super::workers;
use crate::handle::Id;
use crate::memory::{MemoryBlock, MemoryRange, is_unused};
use crate::result::DriverResult;
use crate::streams::Role;

fn wait_done(state: StateGuard, stream: Id, number: u64) -> StateGuard {
    match state.streams.get(&stream).map(|stream| stream.done.clone()) {
        Some(done) => state.wait(&done, None, |state| state.is_done(stream, number)),
        None => state,
    }
}

/// Waits for work, and lets pools reclaim what it freed.
pub(crate) fn wait_for_work(state: StateGuard, stream: Id, number: u64) -> StateGuard {
    let mut state = wait_done(state, stream, number);
    state.reclaim_after_stream(stream, number);
    state
}

/// Waits for all work that was submitted to a stream so far, as `cuStreamSynchronize` does. For the
/// legacy default stream, that includes the blocking streams.
pub(crate) fn synchronize_stream(mut state: StateGuard, stream: Id) -> StateGuard {
    let role = state.streams.get(&stream).map(|own| own.role);
    let mut pending = match role {
        Some(Role::Legacy) => state.implicit_dependencies(stream),
        _ => Vec::new(),
    };
    pending.push((stream, state.last_work(stream)));
    for (stream, number) in pending {
        state = wait_for_work(state, stream, number);
    }
    state
}

/// Waits for all work that was submitted to a context's streams so far.
pub(crate) fn synchronize_context(mut state: StateGuard, context: Id) -> StateGuard {
    let busy = state.contexts.get(&context).map(|c| c.busy.clone());
    let busy = busy.unwrap_or_default().into_iter();
    let pending: Vec<_> = busy.map(|id| (id, state.last_work(id))).collect();
    for (stream, number) in pending {
        state = wait_done(state, stream, number);
    }
    state.reclaim_after_context(context);
    state
}

/// Waits until a context is idle. It must be closing, so that nothing is submitted meanwhile.
/// `false` if another thread destroyed it, or the closing was cancelled.
pub(crate) fn wait_until_idle(mut state: StateGuard, context: Id) -> (StateGuard, bool) {
    // A primary context that is destroyed and activated again has another default stream.
    let legacy = state.contexts.get(&context).map(|c| c.legacy);
    loop {
        let now = state.contexts.get(&context);
        let now = now.filter(|c| c.closing.is_some() && Some(c.legacy) == legacy);
        let Some(now) = now else {
            return (state, false);
        };
        let Some(busy) = now.busy.first().copied() else {
            state.reclaim_after_context(context);
            return (state, true);
        };
        let number = state.last_work(busy);
        state = wait_done(state, busy, number);
    }
}

/// Waits until no work in flight, of any context, uses memory that was removed from the map and that
/// the caller alone owns.
pub(crate) fn wait_until_unused(mut state: StateGuard, block: &Arc<MemoryBlock>) -> StateGuard {
    state.memory_waiters += 1;
    state = state.wait(&MEMORY_UNUSED, None, |_| is_unused(block));
    state.memory_waiters -= 1;
    state
}

/// Removes the range at `base` from the map once all work of its context is complete. For host
/// memory, also waits until no work of other contexts uses it, since the program owns the memory
/// afterwards. `None` if there is no range, or another thread removed it first.
pub(crate) fn remove_when_idle(
    mut state: StateGuard,
    base: u64,
) -> (StateGuard, Option<MemoryRange>) {
    let Some(found) = state.map.at(base) else {
        return (state, None);
    };
    let id = found.id;
    if let Some(context) = found.context {
        state = synchronize_context(state, context);
    }
    let same = state.map.at(base).is_some_and(|range| range.id == id);
    let range = if same { state.map.remove(base) } else { None };
    if let Some(range) = range.as_ref().filter(|range| range.on_host()) {
        state.expect_release(range);
        state = wait_until_unused(state, &range.block);
    }
    (state, range)
}

/// Executes work at its position on a stream, on the calling thread, and returns when it is
/// complete: for synchronous functions.
pub(crate) fn run_now(mut state: StateGuard, stream: Id, run: impl FnOnce()) -> DriverResult {
    state.check_stream(stream)?;
    let mut after = state.join_implicit_dependencies(stream);
    let number = state.next_work(stream);
    after.push((stream, number - 1));
    for (other, number) in after {
        state = wait_done(state, other, number);
    }
    drop(state);
    // Drops its references to memory blocks, before the work counts as complete.
    run();
    state = lock();
    state.complete(stream, number, None);
    state.workers.wake();
    drop(workers::run_without_workers(state));
    Ok(())
}
