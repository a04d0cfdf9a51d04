//! Compaction: merges pages while the context is paused and the device is idle.
//!
//! Compaction moves a block behind its address, so no work may touch the block meanwhile: neither work in flight, nor
//! work that is enqueued before the move is complete. Every operation of this crate that enqueues work enters the gate,
//! so compaction [pauses](cuguard_sync::Gate::pause) the gate. It waits for the device twice: before the pause, for as
//! long as the caller permits, and during the pause, only briefly, because a host function may be waiting at the gate
//! while the device waits for that function. In that case the pause ends, and the compaction tries again.
//!
//! The wait before the pause polls events in the known streams, outside of the gate: it has a limit, and ends when the
//! context is closed. It ends no capture: it fails while a guard captures, and skips streams that other code captures.
//! Only the wait during the pause is a driver call that waits for the whole context, and such a call ends a capture of
//! another thread. So compaction pauses every guard of that context, and none of them begins a capture.

use std::fmt;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use cuguard_driver::result::{self, CallError, context, stream};
use cuguard_driver::sys::{CUresult, CUstream};
use cuguard_pool::{Compacted, PoolError};
use cuguard_sync::{PauseError, own_thread, process};

use crate::core::owned::free_event::FreeEvent;
use crate::core::pools::virtual_pool::{VirtualPool, error_of};
use crate::core::release::deferred;
use crate::core::release::listed_handle::track_context_wait;
use crate::core::shared::context_state::ContextState;
use crate::core::shared::open_contexts;
use crate::core::teardown::peer_streams;
use crate::error::Error;

/// The operation that errors name.
const OPERATION: &str = "Pool::compact";

/// How often it is tried.
const ATTEMPTS: u32 = 4;

/// How long operations of other threads are stopped in the first attempt, at most, until the device is idle. In each further
/// attempt twice as long: a thread that enqueues without a pause has work in flight whenever it is stopped, and that must
/// end first. Longer in all would be felt where an operation that is stopped holds a lock that a host function waits for.
const PATIENCE: Duration = Duration::from_millis(250);

/// How long the last attempt stops them.
const MOST_PATIENCE: Duration = PATIENCE.saturating_mul(1 << (ATTEMPTS - 1));

/// How often it is tried to map a page again that was moved and could not be mapped, and the time between.
const REPAIRS: u32 = 50;
const REPAIR_PAUSE: Duration = Duration::from_millis(10);

/// Why a pool was not compacted.
#[derive(Debug)]
pub(crate) enum NotCompacted {
    /// Merging is turned off in the pool's settings.
    TurnedOff,
    /// A stream of the context is captured: the device cannot be waited for.
    Captured,
    /// A scope of another context uses memory of this one.
    UsedByPeer,
    /// The caller is a host function on a stream, for which the device waits.
    HostFunction,
    /// Operations of other threads did not end in time, or the device did not become idle while they were stopped.
    Busy,
    /// The context is closed, or the process exits.
    Closed,
    /// The driver refused to wait for the device.
    Driver(CallError),
    /// The pool's error.
    Pool(PoolError<CallError>),
}

impl fmt::Display for NotCompacted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TurnedOff => f.write_str("merging is turned off for this pool"),
            Self::Captured => f.write_str(
                "a stream of the context is being captured, so the device cannot be waited for",
            ),
            Self::UsedByPeer => {
                f.write_str("a scope of another context uses device memory of this one")
            }
            Self::HostFunction => f.write_str(
                "it waits for the device, which waits for the host function that called it",
            ),
            Self::Busy => write!(
                f,
                "the device did not become idle in time, or not within {} s while operations were stopped",
                MOST_PATIENCE.as_secs()
            ),
            Self::Closed => f.write_str("the context is closed, or the process is ending"),
            Self::Driver(error) => error.fmt(f),
            Self::Pool(error) => error.fmt(f),
        }
    }
}

impl NotCompacted {
    /// The error of an operation.
    pub(crate) fn into_error(self, state: &ContextState, operation: &'static str) -> Error {
        match self {
            Self::Closed if process::is_exiting() => Error::ProcessEnding { operation },
            Self::Closed => Error::ContextClosed { operation },
            Self::Driver(error) => state.error(operation, error, None),
            Self::Pool(error) => error_of(state, operation, 0, error),
            other => Error::Pool {
                operation,
                reason: other.to_string(),
            },
        }
    }
}

/// Merges pages of a pool until `wanted` bytes are released, or all that can be merged is. Waits for work on the device
/// until `until`, or as long as it takes. The caller is not inside the gate.
pub(crate) fn compact(
    state: &Arc<ContextState>,
    pool: &VirtualPool,
    wanted: u64,
    until: Option<Instant>,
) -> Result<Compacted, NotCompacted> {
    if !pool.settings().merge {
        return Err(NotCompacted::TurnedOff);
    }
    when_idle(state, until, || {
        let compacted = pool.merge(wanted).map_err(NotCompacted::Pool);
        repair(pool);
        compacted
    })
}

/// Waits for the context: for the work of streams that ended where no event could be recorded in them. Returns whether it
/// did, until `until`. The caller is not inside the gate.
pub(crate) fn wait_for_ended_streams(state: &Arc<ContextState>, until: Option<Instant>) -> bool {
    when_idle(state, until, || Ok(())).is_ok()
}

/// Runs `work` while the context is stopped and the device is idle.
fn when_idle<T>(
    state: &Arc<ContextState>,
    until: Option<Instant>,
    work: impl Fn() -> Result<T, NotCompacted>,
) -> Result<T, NotCompacted> {
    // In a forked child a thread that does not exist may hold a lock.
    if process::is_exiting() {
        return Err(NotCompacted::Closed);
    }
    // Frees may be all that is needed, and what is deferred must not be in the way.
    deferred::run();
    if is_in_host_function() {
        return Err(NotCompacted::HostFunction);
    }
    for number in 0..ATTEMPTS {
        wait_for_streams(state, until)?;
        // Past the caller's time there is one attempt, a short one.
        let left = until.map_or(MOST_PATIENCE, |until| {
            until.saturating_duration_since(Instant::now())
        });
        let patience = (PATIENCE * (1 << number)).min(left.max(PATIENCE));
        match attempt(state, patience, &work) {
            Err(NotCompacted::Busy) if !is_past(until) => {}
            done => return done,
        }
    }
    Err(NotCompacted::Busy)
}

fn is_in_host_function() -> bool {
    // The process does not exit meanwhile.
    let inside = open_contexts::enter_process(OPERATION);
    inside.is_ok() && deferred::in_host_function()
}

fn is_past(until: Option<Instant>) -> bool {
    until.is_some_and(|until| Instant::now() >= until)
}

/// The guards of the driver's context, in an order that is the same on all threads.
fn guards_of(state: &ContextState) -> Vec<Arc<ContextState>> {
    let mut guards = open_contexts::on_device(state.device);
    guards.retain(|other| other.context == state.context);
    guards.sort_by_key(|other| other.number);
    guards
}

fn attempt<T>(
    state: &Arc<ContextState>,
    patience: Duration,
    work: impl Fn() -> Result<T, NotCompacted>,
) -> Result<T, NotCompacted> {
    let guards = guards_of(state);
    let mut paused = Vec::new();
    let until = Instant::now() + patience;
    for guard in &guards {
        match guard.gate.pause(until) {
            Ok(pause) => paused.push(pause),
            // Of another guard: nothing begins there.
            Err(PauseError::Closed) if guard.number != state.number => {}
            Err(PauseError::Closed) => return Err(NotCompacted::Closed),
            Err(PauseError::Busy | PauseError::TimedOut) => return Err(NotCompacted::Busy),
        }
    }
    // By other code too, which may capture a stream that is known here. A stream that is not known is found by nothing but
    // the wait, which ends its capture.
    if open_contexts::captures_in(state.context, state.device)
        || guards.iter().any(|one| captures(one))
    {
        return Err(NotCompacted::Captured);
    }
    // A scope of another context enters this gate to enqueue work; what it has enqueued is not waited for here.
    if peer_streams::use_device_memory(state) {
        return Err(NotCompacted::UsedByPeer);
    }
    // What is left of the time: it is how long other threads are stopped.
    let left = until.saturating_duration_since(Instant::now());
    track_context_wait(state, || wait_at_most(state, left))?;
    let done = work();
    drop(paused);
    done
}

/// Whether a stream of the guard is captured. The calling thread has paused its gate.
fn captures(guard: &ContextState) -> bool {
    // Where it is closed, teardown ends what it captures, and no other stream is its own.
    let Ok(_entered) = guard.enter(OPERATION) else {
        return false;
    };
    let handles = guard.streams.lock();
    let streams = handles.live.values();
    let streams = streams.map(|(key, _)| CUstream(key.address as usize));
    streams.chain([CUstream::LEGACY]).any(|stream| {
        // SAFETY: the stream is on the list, which is locked, or the default stream, so it is alive.
        match unsafe { stream::is_capturing(stream) } {
            Ok(is_capturing) => is_capturing,
            // What the default stream returns while a blocking stream is captured.
            Err(error) => error.code == CUresult::STREAM_CAPTURE_IMPLICIT,
        }
    })
}

/// Maps pages again that the driver refused to map, while nothing can be enqueued that uses them. Gives up after some
/// attempts: then operations of the pool fail, which try again each, and work on these blocks is an error of the device.
fn repair(pool: &VirtualPool) {
    for _ in 0..REPAIRS {
        if pool.stats().stuck_windows == 0 || process::is_exiting() {
            return;
        }
        std::thread::sleep(REPAIR_PAUSE);
        // Repairs before anything else, and merges nothing for 0 bytes.
        let _ = pool.merge(0);
    }
}

/// Waits for what is enqueued now in the streams of the context, until `until`. Other work, on streams that are not
/// known, is found when the context is paused.
fn wait_for_streams(state: &Arc<ContextState>, until: Option<Instant>) -> Result<(), NotCompacted> {
    let mut events = Vec::new();
    for guard in guards_of(state) {
        events.extend(FreeEvent::record_all(&guard).ok_or(NotCompacted::Captured)?);
    }
    let mut pause = Duration::from_micros(20);
    loop {
        if state.is_closed() || process::is_exiting() {
            return Err(NotCompacted::Closed);
        }
        events.retain(|event| !event.is_done());
        if events.is_empty() {
            return Ok(());
        }
        if is_past(until) {
            return Err(NotCompacted::Busy);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(2));
    }
}

/// Waits for the context while its gate is paused, on another thread: the driver's function has no timeout.
fn wait_at_most(state: &Arc<ContextState>, most: Duration) -> Result<(), NotCompacted> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let waiting = state.clone();
    let thread = std::thread::Builder::new().name("cuguard-compact".to_owned());
    let spawned = thread.spawn(move || {
        let _own = own_thread::enter_shared();
        // Inside, so that teardown and exit wait for this; it passes the pause.
        let _inside = waiting.gate.enter_closed();
        // If the pause ended before this thread ran, the context may be closed and released by now.
        if !waiting.is_closed() && !process::is_exiting() {
            // Fails where the other thread no longer waits.
            let _ = sender.send(synchronize(&waiting));
        }
    });
    if spawned.is_err() {
        return Err(NotCompacted::Busy);
    }
    match receiver.recv_timeout(most) {
        Ok(waited) => waited.map_err(NotCompacted::Driver),
        Err(_) => Err(NotCompacted::Busy),
    }
}

fn synchronize(state: &ContextState) -> result::Result {
    // SAFETY: the context is alive: the caller is inside its gate, which was not closed then.
    unsafe { context::push_current(state.context)? };
    let waited = context::synchronize();
    if !process::is_exiting() {
        let _ = context::pop_current();
    }
    waited
}
