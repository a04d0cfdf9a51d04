//! What host threads wait for: a stream, an event, a context, memory that work in flight holds.

use std::sync::{Arc, Condvar};

use cuguard_sys::CUresult;

use crate::crew;
use crate::handle::Id;
use crate::lock::{Guard, lock};
use crate::machine::Machine;
use crate::memory_block::{MemoryBlock, is_unused};
use crate::queue::Role;

/// Tells those who wait for memory that work which may have held it is done.
static PROGRESS: Condvar = Condvar::new();

impl Machine {
    /// The host has seen work happen: pools take back what was freed by it, and give chunks back
    /// to the device. `seen` tells, of a stream, up to which piece of work. The work of streams
    /// that are gone has happened too.
    fn observe(&mut self, seen: impl Fn(&Machine, Id) -> Option<u64>) {
        let mut pools = std::mem::take(&mut self.pools);
        let mut destroyed = Vec::new();
        for (id, pool) in pools.iter_mut().filter(|(_, pool)| pool.has_freed()) {
            pool.observe(|stream| match self.streams.contains_key(&stream) {
                true => seen(self, stream),
                false => Some(u64::MAX),
            });
            let memory = &mut self.devices[pool.device as usize].memory;
            pool.release(pool.release_threshold, memory);
            if pool.destroyed {
                destroyed.push(*id);
            }
        }
        self.pools = pools;
        for pool in destroyed {
            self.drop_pool_if_done(pool);
        }
    }

    fn observe_stream(&mut self, stream: Id, number: u64) {
        self.observe(|_, other| (other == stream).then_some(number));
    }

    pub(crate) fn observe_context(&mut self, context: Id) {
        self.observe(|machine, stream| {
            let stream = machine.streams.get(&stream)?;
            (stream.context == context).then_some(stream.completed)
        });
    }

    /// Tells those who wait for memory to look again.
    pub(crate) fn tell_watchers(&self) {
        if self.watchers > 0 {
            PROGRESS.notify_all();
        }
    }
}

/// Waits for a piece of work.
fn wait_done(guard: Guard, stream: Id, number: u64) -> Guard {
    match guard.streams.get(&stream).map(|stream| stream.done.clone()) {
        Some(done) => guard.wait(&done, |machine| machine.is_done(stream, number)),
        None => guard,
    }
}

/// Waits for a piece of work; pools take note that the host has seen it.
pub(crate) fn wait_for_work(guard: Guard, stream: Id, number: u64) -> Guard {
    let mut guard = wait_done(guard, stream, number);
    guard.observe_stream(stream, number);
    guard
}

/// Waits for all that a stream was given so far, as `cuStreamSynchronize` does. Only the legacy
/// stream's own idleness includes the others'.
pub(crate) fn synchronize_stream(mut guard: Guard, stream: Id) -> Guard {
    let role = guard.streams.get(&stream).map(|own| own.role);
    let mut pending = match role {
        Some(Role::Legacy) => guard.implied_order(stream),
        _ => Vec::new(),
    };
    pending.push((stream, guard.last_work(stream)));
    for (stream, number) in pending {
        guard = wait_for_work(guard, stream, number);
    }
    guard
}

/// Waits for all that a context's streams were given so far.
pub(crate) fn synchronize_context(mut guard: Guard, context: Id) -> Guard {
    let busy = guard.contexts.get(&context).map(|c| c.busy.clone());
    let busy = busy.unwrap_or_default().into_iter();
    let pending: Vec<_> = busy.map(|id| (id, guard.last_work(id))).collect();
    for (stream, number) in pending {
        guard = wait_done(guard, stream, number);
    }
    guard.observe_context(context);
    guard
}

/// Waits until a context has nothing to do any more. It must be closing, so that it gets nothing
/// new. `false`: somebody else has ended it, or wants it kept.
pub(crate) fn wait_until_idle(mut guard: Guard, context: Id) -> (Guard, bool) {
    // A primary context that ends and comes back has another default stream.
    let life = guard.contexts.get(&context).map(|c| c.legacy);
    loop {
        let now = guard.contexts.get(&context);
        let now = now.filter(|c| c.closing.is_some() && Some(c.legacy) == life);
        let Some(now) = now else {
            return (guard, false);
        };
        let Some(busy) = now.busy.first().copied() else {
            guard.observe_context(context);
            return (guard, true);
        };
        let number = guard.last_work(busy);
        guard = wait_done(guard, busy, number);
    }
}

/// Waits until no work in flight, of whatever context, holds memory that has left the map and that
/// the caller alone owns.
pub(crate) fn wait_until_unused(mut guard: Guard, block: &Arc<MemoryBlock>) -> Guard {
    guard.watchers += 1;
    guard = guard.wait(&PROGRESS, |_| is_unused(block));
    guard.watchers -= 1;
    guard
}

/// Does a piece of work in its place on a stream, on the calling thread, and returns when it is
/// done: what synchronous functions do.
pub(crate) fn run_now(mut guard: Guard, stream: Id, run: impl FnOnce()) -> Result<Guard, CUresult> {
    guard.check_stream(stream)?;
    let mut after = guard.join_implied_order(stream);
    let number = guard.next_work(stream);
    after.push((stream, number - 1));
    for (other, number) in after {
        guard = wait_done(guard, other, number);
    }
    drop(guard);
    // With the work goes its hold on memory, before anybody is told that it is done.
    run();
    guard = lock();
    guard.complete(stream, number);
    guard.crew.rouse();
    Ok(crew::do_without_crew(guard))
}
