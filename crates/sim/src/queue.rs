//! Streams: work that runs in order, each stream's on a thread of its own, so that a copy is
//! really in flight until somebody waits for it.
//!
//! A piece of work is known by its stream and its number on it. It may wait for pieces on other
//! streams; that is how events and the legacy default stream order work between streams.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar};

use cuguard_sys::{CUresult, CUstream, flags};

use crate::current;
use crate::handle::{self, Kind};
use crate::machine::{self, Answer, Guard, Machine, lock, wait_until};

/// What a stream is to its context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Created,
    /// Waits for all blocking streams, and they for it.
    Legacy,
    PerThread,
}

/// What work does.
type Run = Box<dyn FnOnce() + Send>;
/// What changes in the machine when work is done, under its lock.
type Then = Box<dyn FnOnce(&mut Machine) + Send>;

pub(crate) struct Work {
    number: u64,
    /// (stream, number): what must be done before.
    after: Vec<(u32, u64)>,
    run: Option<Run>,
    then: Option<Then>,
}

impl fmt::Debug for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Work({} after {:?})", self.number, self.after)
    }
}

#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) context: u32,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
    role: Role,
    submitted: u64,
    completed: u64,
    queue: VecDeque<Work>,
    /// Destroyed by the program; it lives on until its work is done.
    destroyed: bool,
    has_worker: bool,
    /// Tells the worker to look again.
    wake: Arc<Condvar>,
    /// The worker waits for another stream.
    held_up: bool,
}

impl Stream {
    fn new(context: u32, role: Role, flags: u32, priority: i32) -> Self {
        Self {
            context,
            flags,
            priority,
            role,
            submitted: 0,
            completed: 0,
            queue: VecDeque::new(),
            destroyed: false,
            has_worker: false,
            wake: Arc::default(),
            held_up: false,
        }
    }

    pub(crate) fn legacy(context: u32) -> Self {
        Self::new(context, Role::Legacy, 0, 0)
    }

    pub(crate) fn created(context: u32, flags: u32, priority: i32) -> Self {
        Self::new(context, Role::Created, flags, priority)
    }

    pub(crate) fn is_created(&self) -> bool {
        self.role == Role::Created && !self.destroyed
    }

    fn is_blocking(&self) -> bool {
        self.role != Role::Legacy && self.flags & flags::STREAM_NON_BLOCKING == 0
    }

    fn is_idle(&self) -> bool {
        self.completed == self.submitted
    }

    pub(crate) fn completed(&self) -> u64 {
        self.completed
    }

    /// Sends the worker home.
    pub(crate) fn dismiss(&self) {
        self.wake.notify_one();
    }
}

/// Host code that work in flight runs, with the data it is to be given.
pub(crate) struct HostCall<F: FnOnce()>(pub(crate) F);

// SAFETY: the program handed function and data to the driver to be called on a thread of the
// driver's, which is the contract of `cuLaunchHostFunc` and `cuStreamAddCallback`.
unsafe impl<F: FnOnce()> Send for HostCall<F> {}

impl<F: FnOnce()> HostCall<F> {
    pub(crate) fn run(self) {
        current::as_host_function(self.0);
    }
}

impl Machine {
    /// The stream behind a handle: 0 and 1 are the current context's legacy default stream, 2 the
    /// calling thread's own.
    pub(crate) fn stream(&mut self, handle: CUstream) -> Result<u32, CUresult> {
        match handle {
            CUstream::NULL | CUstream::LEGACY => {
                let context = self.current()?;
                Ok(self.contexts[&context].legacy)
            }
            CUstream::PER_THREAD => self.per_thread_stream(),
            _ => {
                self.check_current_if_any()?;
                let id = handle::decode(Kind::Stream, handle.0);
                match id.filter(|id| self.streams.get(id).is_some_and(Stream::is_created)) {
                    Some(id) => Ok(id),
                    None => Err(self.dead_handle(Kind::Stream, handle.0, CUresult::INVALID_HANDLE)),
                }
            }
        }
    }

    fn per_thread_stream(&mut self) -> Result<u32, CUresult> {
        let context = self.current()?;
        let thread = current::thread_number();
        if let Some(id) = self.contexts[&context].per_thread.get(&thread) {
            return Ok(*id);
        }
        let id = self.new_id();
        self.streams
            .insert(id, Stream::new(context, Role::PerThread, 0, 0));
        if let Some(context) = self.contexts.get_mut(&context) {
            context.per_thread.insert(thread, id);
        }
        Ok(id)
    }

    /// The last piece of work on a stream so far.
    pub(crate) fn last_work(&self, stream: u32) -> u64 {
        self.streams
            .get(&stream)
            .map_or(0, |stream| stream.submitted)
    }

    /// Whether a piece of work is done. What a stream that is gone had to do is done.
    pub(crate) fn is_done(&self, stream: u32, number: u64) -> bool {
        self.streams
            .get(&stream)
            .is_none_or(|stream| stream.completed >= number)
    }

    /// What new work on a stream has to wait for on other streams, by the rules of the legacy
    /// default stream.
    fn implied_order(&self, stream: u32) -> Vec<(u32, u64)> {
        let Some(own) = self.streams.get(&stream) else {
            return Vec::new();
        };
        let others = self.streams.iter().filter(|(_, other)| {
            other.context == own.context
                && !other.is_idle()
                && match own.role {
                    Role::Legacy => other.is_blocking(),
                    _ => own.is_blocking() && other.role == Role::Legacy,
                }
        });
        others.map(|(id, other)| (*id, other.submitted)).collect()
    }

    /// Whether all that a stream was given so far is done; for the legacy default stream, that
    /// includes the blocking streams.
    pub(crate) fn is_stream_idle(&self, stream: u32) -> bool {
        let own = self.streams.get(&stream).is_none_or(Stream::is_idle);
        own && (!self
            .streams
            .get(&stream)
            .is_some_and(|s| s.role == Role::Legacy)
            || self.implied_order(stream).is_empty())
    }

    /// Appends work to a stream and returns its number.
    pub(crate) fn submit(
        &mut self,
        stream: u32,
        mut after: Vec<(u32, u64)>,
        run: Option<Run>,
        then: Option<Then>,
    ) -> Result<u64, CUresult> {
        after.extend(self.implied_order(stream));
        let Some(s) = self.streams.get_mut(&stream) else {
            return Err(CUresult::INVALID_HANDLE);
        };
        if !s.has_worker {
            std::thread::Builder::new()
                .name(format!("sim-stream-{stream}"))
                .spawn(move || work_off(stream))
                .map_err(|_| CUresult::OPERATING_SYSTEM)?;
            s.has_worker = true;
        }
        s.submitted += 1;
        let number = s.submitted;
        s.queue.push_back(Work {
            number,
            after,
            run,
            then,
        });
        s.wake.notify_one();
        Ok(number)
    }

    /// Notes that a piece of work is done, and tells those who wait for it.
    fn complete(&mut self, stream: u32, number: u64) {
        if let Some(s) = self.streams.get_mut(&stream) {
            s.completed = number;
            s.wake.notify_one();
            if s.destroyed && s.is_idle() {
                self.streams.remove(&stream);
            }
        }
        self.streams
            .values()
            .filter(|s| s.held_up)
            .for_each(|s| s.wake.notify_one());
        machine::tell_progress();
    }

    /// Ends a stream for the program; work that it still has is done.
    pub(crate) fn destroy_stream(&mut self, stream: u32) {
        if let Some(s) = self.streams.get_mut(&stream) {
            s.destroyed = true;
            s.dismiss();
            if s.is_idle() {
                self.streams.remove(&stream);
            }
        }
    }

    /// The host has seen the work on a stream up to a number happen: pools take back what was
    /// freed by it, and give chunks back to the device. The work of streams that are gone has
    /// happened too.
    pub(crate) fn observe(&mut self, stream: u32, number: u64) {
        let streams = &self.streams;
        let seen = |other: u32| match streams.contains_key(&other) {
            _ if other == stream => Some(number),
            true => None,
            false => Some(u64::MAX),
        };
        for pool in self.pools.values_mut().filter(|pool| pool.has_freed()) {
            pool.observe(seen);
            pool.release(
                pool.release_threshold,
                &mut self.devices[pool.device as usize].memory,
            );
        }
        let destroyed: Vec<u32> = self
            .pools
            .iter()
            .filter(|(_, pool)| pool.destroyed)
            .map(|(id, _)| *id)
            .collect();
        for pool in destroyed {
            self.drop_pool_if_done(pool);
        }
    }
}

/// The life of a stream's thread.
fn work_off(stream: u32) {
    let mut machine = lock();
    loop {
        let Some(s) = machine.streams.get(&stream) else {
            return;
        };
        let ready = s.queue.front().is_some_and(|work| {
            work.number == s.completed + 1
                && work
                    .after
                    .iter()
                    .all(|(other, number)| machine.is_done(*other, *number))
        });
        let wake = s.wake.clone();
        let latency = machine.config.latency;
        let work = machine.streams.get_mut(&stream).and_then(|s| {
            s.held_up = !ready && !s.queue.is_empty();
            if ready { s.queue.pop_front() } else { None }
        });
        let Some(work) = work else {
            machine = wake.wait(machine).unwrap_or_else(|e| e.into_inner());
            continue;
        };
        drop(machine);
        if !latency.is_zero() {
            std::thread::sleep(latency);
        }
        if let Some(run) = work.run {
            run();
        }
        machine = lock();
        if let Some(then) = work.then {
            then(&mut machine);
        }
        machine.complete(stream, work.number);
    }
}

/// Does a piece of work in its place on a stream, on the calling thread, and returns when it is
/// done: what synchronous functions do.
pub(crate) fn run_now(mut guard: Guard, stream: u32, run: impl FnOnce()) -> Guard {
    let after = guard.implied_order(stream);
    let Some(s) = guard.streams.get_mut(&stream) else {
        return guard;
    };
    s.submitted += 1;
    let number = s.submitted;
    guard = wait_until(guard, |machine| {
        machine.is_done(stream, number - 1)
            && after
                .iter()
                .all(|(other, number)| machine.is_done(*other, *number))
    });
    drop(guard);
    run();
    guard = lock();
    guard.complete(stream, number);
    guard
}

/// Waits for all that a stream was given so far, as `cuStreamSynchronize` does.
pub(crate) fn synchronize_stream(guard: Guard, stream: u32) -> Guard {
    let mut pending = guard.implied_order(stream);
    // Only the legacy stream's own idleness includes the others'.
    if guard
        .streams
        .get(&stream)
        .is_some_and(|s| s.role != Role::Legacy)
    {
        pending.clear();
    }
    pending.push((stream, guard.last_work(stream)));
    wait_for_all(guard, pending)
}

/// Waits for all that a context's streams were given so far.
pub(crate) fn synchronize_context(guard: Guard, context: u32) -> Guard {
    let streams = guard.streams.iter().filter(|(_, s)| s.context == context);
    let pending = streams.map(|(id, s)| (*id, s.submitted)).collect();
    wait_for_all(guard, pending)
}

/// Waits until a context has nothing to do any more, also of what other threads give it while
/// this waits: what must hold before a context can end.
pub(crate) fn wait_until_idle(guard: Guard, context: u32) -> Guard {
    let mut guard = wait_until(guard, |machine| {
        machine
            .streams
            .values()
            .all(|stream| stream.context != context || stream.is_idle())
    });
    let own = guard.streams.iter().filter(|(_, s)| s.context == context);
    let done: Vec<_> = own.map(|(id, s)| (*id, s.completed)).collect();
    for (stream, number) in done {
        guard.observe(stream, number);
    }
    guard
}

fn wait_for_all(guard: Guard, pending: Vec<(u32, u64)>) -> Guard {
    let mut guard = wait_until(guard, |machine| {
        pending
            .iter()
            .all(|(id, number)| machine.is_done(*id, *number))
    });
    for (stream, number) in pending {
        guard.observe(stream, number);
    }
    guard
}

/// Appends work without a change in the machine.
pub(crate) fn submit_run(
    machine: &mut Machine,
    stream: u32,
    run: impl FnOnce() + Send + 'static,
) -> Answer {
    machine
        .submit(stream, Vec::new(), Some(Box::new(run)), None)
        .map(|_| ())
}
