//! Frees that are pending on streams: how many, and to wait for them.
//!
//! Memory that is freed on a stream becomes available to other allocations when two things have happened: the stream
//! has executed the free, and *the host has synchronized* with the stream, with an event after the free, or with the
//! context. To query the stream, to let time pass or to trim the pool is not enough. (The conformance suite tests
//! that.) So a stream that is long idle may withhold any amount of memory, and recovery synchronizes with an event
//! although a query says that it is complete.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cuguard_driver::result::event;
use cuguard_driver::sys::{CUstream, flags};

use super::{OPERATION, pools};
use crate::core::handle_list::{Handles, destroy_complete_events, destroy_event, record_event};
use crate::core::open_contexts::on_device;
use crate::core::{ContextState, FreePoint, FreeProgress};
use crate::error::Error;
use cuguard_sync::process;

/// How many streams of the device's contexts have frees pending, and an upper bound of the bytes.
pub(super) fn pending(device: u32) -> (u64, u64) {
    let (mut streams, mut bytes) = (0_u64, 0_u64);
    for state in on_device(device) {
        let (destroyed, freed) = destroy_complete_events(&state);
        (streams, bytes) = (streams + destroyed, bytes.saturating_add(freed));
        for (_, progress) in state.streams.lock().live.values() {
            let pending = progress.pending();
            streams += u64::from(pending != 0);
            bytes = bytes.saturating_add(pending);
        }
    }
    (streams, bytes)
}

/// An event after the frees of a stream.
///
/// It is on the list of its context's streams until it is destroyed, so that teardown finds it.
struct FreeEvent {
    state: Arc<ContextState>,
    number: u64,
    progress: Arc<FreeProgress>,
    /// Where it is in its stream.
    point: FreePoint,
}

impl FreeEvent {
    /// Records an event in each stream of a context that has frees pending. Also returns how many streams failed.
    fn record_all(state: &Arc<ContextState>) -> (Vec<Self>, u64) {
        let (mut recorded, mut failed, mut failures) = (Vec::new(), Vec::new(), 0);
        let Ok(entered) = state.enter(OPERATION) else {
            return (recorded, failures);
        };
        let mut handles = state.streams.lock();
        let Handles {
            next, live, events, ..
        } = &mut *handles;
        for (key, progress) in live.values() {
            if progress.pending() == 0 {
                continue;
            }
            // Before the event is recorded, so that the event is after all frees up to this point.
            let point = progress.point();
            let Ok(event) = event::create(flags::EVENT_DISABLE_TIMING) else {
                failures += 1;
                continue;
            };
            *next += 1;
            events.insert(*next, event);
            let free_event = Self {
                state: state.clone(),
                number: *next,
                progress: progress.clone(),
                point,
            };
            // SAFETY: the stream is on the list, so it is alive; both are of one context.
            if unsafe { event::record(event, CUstream(key.address as usize)) }.is_ok() {
                recorded.push(free_event);
            } else {
                failures += 1;
                failed.push(free_event);
            }
        }
        drop(handles);
        drop(entered);
        // Their drops enter and lock.
        drop(failed);
        (recorded, failures)
    }

    /// Whether the device has passed the event. If so, synchronizes with it, which returns at once and makes the memory
    /// available.
    fn is_done(&self) -> bool {
        let event = self.state.streams.lock().events.get(&self.number).copied();
        let Some(event) = event else {
            // Teardown took it, when the device was idle.
            return true;
        };
        match self.state.enter(OPERATION) {
            Ok(_entered) => {
                // SAFETY: the event is alive: only teardown destroys it otherwise, and waits for operations inside the
                // gate.
                let passed = unsafe { event::query(event) };
                // SAFETY: as above.
                if passed == Ok(true) && unsafe { event::synchronize(event) }.is_ok() {
                    self.progress.complete_to(self.point);
                }
                passed != Ok(false)
            }
            // Teardown is about to take it.
            Err(Error::ContextClosed { .. }) => false,
            Err(_) => true,
        }
    }
}

impl Drop for FreeEvent {
    fn drop(&mut self) {
        // If the context is closed, teardown destroys it; at exit nothing calls the driver.
        let Ok((_entered, current)) = self.state.enter_any_context(OPERATION) else {
            return;
        };
        let event = self.state.streams.lock().events.remove(&self.number);
        let Some(event) = event else {
            return;
        };
        match current {
            // SAFETY: it is off the list, so this is the only reference; its context is current.
            Ok(()) => drop(unsafe { destroy_event(&self.state, event) }),
            Err(error) => record_event(&self.state, event, error),
        }
    }
}

/// Waits for pending frees, for `most` at most, and calls `enough` each time that some are complete. Returns false if
/// there are none that could help.
pub(super) fn wait_for_frees(
    state: &Arc<ContextState>,
    most: Duration,
    enough: &mut dyn FnMut() -> bool,
) -> bool {
    let pools = pools::pools(state);
    if pools.iter().all(|pool| pool.unused() == 0) && !pools::is_another_set(state) {
        return false;
    }
    let contexts = on_device(state.device);
    let mut events = Vec::new();
    let mut any_failed = false;
    for state in &contexts {
        let (recorded, failures) = FreeEvent::record_all(state);
        events.extend(recorded);
        any_failed |= failures != 0;
    }
    // Streams that were destroyed with frees pending.
    let destroyed = || -> u64 {
        let left = contexts.iter().map(|state| destroy_complete_events(state));
        left.map(|(streams, _)| streams).sum()
    };
    let mut left = events.len() as u64 + destroyed();
    if left == 0 && !any_failed {
        return false;
    }
    let begin = Instant::now();
    let mut pause = Duration::from_micros(20);
    // Holds no lock while it pauses: other threads create and destroy streams.
    loop {
        let before = left;
        events.retain(|event| !event.is_done());
        left = events.len() as u64 + destroyed();
        let timed_out = begin.elapsed() >= most || process::is_exiting() || state.is_closed();
        let is_over = timed_out || left == 0;
        // Slow streams are not waited for if the others free enough.
        let is_enough = (is_over || left < before) && enough();
        if is_over || is_enough {
            return true;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(2));
    }
}
