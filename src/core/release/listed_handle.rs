//! A stream or a pool on the list of its context, and waits for all of them.

use std::sync::Arc;

use cuguard_driver::result::{self, CallError, event, stream};
use cuguard_driver::sys::{CUevent, CUstream, flags};
use cuguard_registry::{Key, PAGE, ResourceKind};
use cuguard_sync::process;

use crate::core::release::free;
use crate::core::shared::context_state::ContextState;
use crate::core::shared::free_progress::FreeProgress;
use crate::core::shared::handle_list::HandleList;
use crate::core::shared::open_contexts;

/// The operation that errors name.
const OPERATION: &str = "out of memory";

fn event_key(event: CUevent) -> Key {
    Key::new(ResourceKind::Event, event.0 as u64)
}

/// Keeps a handle on its list. Dropped before the handle is destroyed.
pub(crate) struct ListedHandle {
    pub(crate) state: Arc<ContextState>,
    list: fn(&ContextState) -> &HandleList,
    number: u64,
    key: Key,
    /// Used for streams only.
    pub(crate) progress: Arc<FreeProgress>,
}

impl std::fmt::Debug for ListedHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "number {} of {:?}", self.number, self.state)
    }
}

impl ListedHandle {
    pub(crate) fn new(
        state: &Arc<ContextState>,
        list: fn(&ContextState) -> &HandleList,
        key: Key,
    ) -> Self {
        let progress = Arc::<FreeProgress>::default();
        let mut handles = list(state).lock();
        handles.next += 1;
        let number = handles.next;
        handles.live.insert(number, (key, progress.clone()));
        drop(handles);
        Self {
            state: state.clone(),
            list,
            number,
            key,
            progress,
        }
    }

    /// Records an event in a stream that is about to be destroyed with frees pending, so that recovery can wait for
    /// them. (Frees that are complete need no wait after the stream is destroyed.)
    fn record_last_event(&self) {
        // Less than a page is not worth a wait.
        let pending = self.progress.pending();
        if pending < PAGE {
            return;
        }
        let Ok(_entered) = self.state.enter(OPERATION) else {
            return;
        };
        let stream = CUstream(self.key.address as usize);
        // SAFETY: it is destroyed after this.
        if unsafe { stream::query(stream) } != Ok(false) {
            return;
        }
        let Ok(event) = event::create(flags::EVENT_DISABLE_TIMING) else {
            return;
        };
        // SAFETY: both are alive, and of one context.
        if unsafe { event::record(event, stream) }.is_ok() {
            let mut handles = self.state.streams.lock();
            handles.destroyed.insert(self.number, (event, pending));
        } else {
            // SAFETY: created above; no other reference exists.
            let _ = unsafe { destroy_event(&self.state, event) };
        }
    }
}

impl Drop for ListedHandle {
    fn drop(&mut self) {
        // In a forked child a thread that does not exist may hold the lock; and at exit nothing is destroyed.
        if process::is_exiting() {
            return;
        }
        destroy_complete_events(&self.state);
        self.record_last_event();
        let mut handles = (self.list)(&self.state).lock();
        handles.live.remove(&self.number);
    }
}

/// Runs `wait`, which waits for the driver's context: for all of its streams, those of other `Context`s on the same
/// primary context included.
pub(crate) fn track_context_wait<T, E>(
    state: &ContextState,
    wait: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let mut points = Vec::new();
    let mut ended = Vec::new();
    let mut contexts = open_contexts::on_device(state.device);
    contexts.retain(|other| other.context == state.context);
    for other in contexts {
        for (_, progress) in other.streams.lock().live.values() {
            points.push((progress.clone(), progress.point()));
        }
        let unfinished = other.pools_of_cuguard().unfinished();
        ended.extend(unfinished.into_iter().map(|one| (other.clone(), one)));
    }
    wait().inspect(|_| {
        for (context, unfinished) in ended {
            if let Some(_inside) = context.try_enter() {
                unfinished.finish();
            }
        }
        for (progress, point) in points {
            progress.complete_to(point);
        }
    })
}

/// Destroys the events of destroyed streams that the device has passed. Returns how many are left, and the bytes that
/// are freed before them.
pub(crate) fn destroy_complete_events(state: &ContextState) -> (u64, u64) {
    if state.streams.lock().destroyed.is_empty() {
        return (0, 0);
    }
    let Ok(_entered) = state.enter(OPERATION) else {
        return (0, 0);
    };
    let mut complete = Vec::new();
    let mut handles = state.streams.lock();
    handles.destroyed.retain(|_, (event, _)| {
        // SAFETY: it is alive, because it is on the list.
        let is_pending = unsafe { event::query(*event) } == Ok(false);
        if !is_pending {
            complete.push(*event);
        }
        is_pending
    });
    let bytes = handles.destroyed.values().map(|(_, bytes)| *bytes);
    let bytes = bytes.fold(0, u64::saturating_add);
    let left = (handles.destroyed.len() as u64, bytes);
    drop(handles);
    for event in complete {
        // SAFETY: it is off the list, so this is the only reference; its context is current.
        let _ = unsafe { destroy_event(state, event) };
    }
    left
}

/// Destroys an event that has no guard. A failed free is recorded.
///
/// # Safety
///
/// It is alive and not in use, and its context is current.
pub(crate) unsafe fn destroy_event(state: &ContextState, event: CUevent) -> result::Result {
    // SAFETY: as the caller ensures.
    let destroyed = unsafe { free::free(event_key(event), CUstream::NULL) };
    destroyed.inspect_err(|error| record_event(state, event, *error))
}

/// Records an event that could not be destroyed.
pub(crate) fn record_event(state: &ContextState, event: CUevent, error: CallError) {
    state.record_failed_free(event_key(event), 0, None, error);
}
