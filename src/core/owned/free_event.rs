//! Events in the streams of a context, for waits without a blocking call.
//!
//! A driver call that waits for the whole context has no time limit, and ends a capture of another thread. Querying
//! events has neither drawback.

use std::sync::Arc;

use cuguard_driver::result::{self, event, stream};
use cuguard_driver::sys::{CUstream, flags};

use crate::core::owned::ownership::StreamState;
use crate::core::release::listed_handle::{destroy_event, record_event};
use crate::core::shared::context_state::ContextState;
use crate::core::shared::free_progress::{FreePoint, FreeProgress};
use crate::core::shared::handle_list::Handles;
use crate::error::{Error, Result};

/// The operation that errors name.
const OPERATION: &str = "out of memory";

/// An event after the frees of a stream, and after its other work.
///
/// It is on the list of its context's streams until it is destroyed, so that teardown finds it.
#[derive(Debug)]
pub(crate) struct FreeEvent {
    state: Arc<ContextState>,
    number: u64,
    progress: Arc<FreeProgress>,
    /// Where it is in its stream.
    point: FreePoint,
}

impl FreeEvent {
    /// Records an event in each stream of a context that has frees pending. Also returns how many streams failed.
    pub(crate) fn record_pending(state: &Arc<ContextState>) -> (Vec<Self>, u64) {
        let Ok(entered) = state.enter(OPERATION) else {
            return (Vec::new(), 0);
        };
        let recorded = Self::record(state, |handles| {
            let streams = handles.live.values();
            let streams = streams.filter(|(_, progress)| progress.pending() != 0);
            streams
                .map(|(key, progress)| (CUstream(key.address as usize), progress.clone()))
                .collect()
        });
        drop(entered);
        // The drops of those that failed enter and lock.
        (recorded.0, recorded.1.len() as u64)
    }

    /// Records an event in each stream of a context and in its default stream, as far as the driver permits. `None` if the
    /// guard captures: no capture begins meanwhile.
    pub(crate) fn record_all(state: &Arc<ContextState>) -> Option<Vec<Self>> {
        let Ok(entered) = state.enter(OPERATION) else {
            return Some(Vec::new());
        };
        let recorded = state.captures.unless_any(|| {
            Self::record(state, |handles| {
                let streams = handles.live.values();
                let streams = streams
                    .map(|(key, progress)| (CUstream(key.address as usize), progress.clone()))
                    .chain([(CUstream::LEGACY, Arc::default())]);
                // An event in a stream that other code captures would become a part of its graph.
                streams
                    // SAFETY: the stream is on the list, or the default stream, so it is alive.
                    .filter(|(stream, _)| unsafe { stream::is_capturing(*stream) } == Ok(false))
                    .collect()
            })
        });
        drop(entered);
        recorded.map(|(recorded, _)| recorded)
    }

    /// Records an event in a stream that is alive, as far as the driver permits.
    pub(crate) fn record_in(stream: &StreamState) -> Option<Self> {
        match stream.is_per_thread() {
            // That of the thread that uses it: the legacy default stream comes after all of them.
            true => Self::record_one(stream, CUstream::LEGACY, Arc::default()),
            false => Self::record_own(stream),
        }
    }

    /// The same for the thread that enqueues: its own stream, if that is the per-thread default stream.
    pub(crate) fn record_own(stream: &StreamState) -> Option<Self> {
        Self::record_one(stream, stream.handle(), stream.progress().clone())
    }

    /// Records an event in a stream of the context of `stream`, which is alive. Not under the lock of the list: the driver may
    /// block where a queue is full.
    fn record_one(
        stream: &StreamState,
        handle: CUstream,
        progress: Arc<FreeProgress>,
    ) -> Option<Self> {
        let state = stream.state();
        let _entered = state.enter(OPERATION).ok()?;
        // An event in a stream that other code captures would become a part of its graph.
        // SAFETY: the stream is alive.
        if unsafe { stream::is_capturing(stream.handle()) } != Ok(false) {
            return None;
        }
        // Before the event is recorded, so that the event is after all frees up to this point.
        let point = progress.point();
        let event = event::create(flags::EVENT_DISABLE_TIMING).ok()?;
        // SAFETY: both are alive, and of one context.
        if unsafe { event::record(event, handle) }.is_err() {
            // SAFETY: created above; no other reference exists.
            let _ = unsafe { destroy_event(state, event) };
            return None;
        }
        // Teardown, which takes what is on the list, waits for this operation.
        Some(Self {
            state: state.clone(),
            number: state.streams.add_event(event),
            progress,
            point,
        })
    }

    /// Records an event in each of some streams. Also returns the events that failed, to be dropped outside of the gate.
    fn record(
        state: &Arc<ContextState>,
        streams: impl FnOnce(&Handles) -> Vec<(CUstream, Arc<FreeProgress>)>,
    ) -> (Vec<Self>, Vec<Option<Self>>) {
        let (mut recorded, mut failed) = (Vec::new(), Vec::new());
        let mut handles = state.streams.lock();
        for (stream, progress) in streams(&handles) {
            // Before the event is recorded, so that the event is after all frees up to this point.
            let point = progress.point();
            let Ok(event) = event::create(flags::EVENT_DISABLE_TIMING) else {
                failed.push(None);
                continue;
            };
            let Handles { next, events, .. } = &mut *handles;
            *next += 1;
            events.insert(*next, event);
            let free_event = Self {
                state: state.clone(),
                number: *next,
                progress,
                point,
            };
            // SAFETY: the stream is on the list, which is locked, so it is alive; both are of one context.
            match unsafe { event::record(event, stream) } {
                Ok(()) => recorded.push(free_event),
                Err(_) => failed.push(Some(free_event)),
            }
        }
        drop(handles);
        (recorded, failed)
    }

    /// Orders work that is enqueued on a stream of the same context from now on after the event.
    pub(crate) fn order(&self, operation: &'static str, stream: &StreamState) -> Result<()> {
        let entered = self.state.enter(operation)?;
        let event = self.state.streams.lock().events.get(&self.number).copied();
        let Some(event) = event else {
            // Teardown took it, when the device was idle.
            return Ok(());
        };
        // SAFETY: both are alive, and of one context: only teardown destroys the event otherwise, and waits for operations inside
        // the gate.
        entered.check(unsafe { stream::wait_event(stream.handle(), event) })
    }

    /// Whether the device has passed the event, or nothing is known of that. If it has, synchronizes with it, which returns at
    /// once and makes the memory available.
    pub(crate) fn is_done(&self) -> bool {
        self.has_passed() != Ok(false)
    }

    /// Whether the device has passed the event.
    pub(crate) fn has_passed(&self) -> result::Result<bool> {
        let event = self.state.streams.lock().events.get(&self.number).copied();
        let Some(event) = event else {
            // Teardown took it, when the device was idle.
            return Ok(true);
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
                passed
            }
            // Teardown is about to take it.
            Err(Error::ContextClosed { .. }) => Ok(false),
            Err(_) => Ok(true),
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
