//! The streams and pools of a context, and the frees that streams still have to do.
//!
//! Teardown takes the events of this list, recovery waits for them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cuguard_driver::result::{self, CallError, event, stream};
use cuguard_driver::sys::{CUevent, CUstream, flags};
use cuguard_registry::{Key, Kind, PAGE};
use cuguard_sync::process;

use super::context_state::ContextState;
use super::free_progress::{FreePoint, FreeProgress};
use super::{free, open_contexts};

const OPERATION: &str = "out of memory";

/// The streams, or the pools, of a context that are there, by the order in which they were made.
/// Nothing is destroyed while the list is locked, so what is in it can be used.
#[derive(Default)]
pub(crate) struct List(Mutex<Entries>);

#[derive(Default)]
pub(crate) struct Entries {
    pub(crate) next: u64,
    pub(crate) all: BTreeMap<u64, (Key, Arc<FreeProgress>)>,
    /// The events of [marks](Mark) in the streams.
    pub(crate) marks: BTreeMap<u64, CUevent>,
    /// What streams had to do that are gone: an event after it, and the bytes that were freed. They come
    /// back by themselves when the device gets there.
    parting: BTreeMap<u64, (CUevent, u64)>,
}

impl List {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the events of marks that others wait for, and of streams that are gone. The gate is closed,
    /// and the device has nothing left to do: for them that is as good as that it passed.
    pub(crate) fn take_marks(&self) -> Vec<CUevent> {
        let mut entries = self.lock();
        let marks = std::mem::take(&mut entries.marks).into_values();
        let parting = std::mem::take(&mut entries.parting).into_values();
        let events = marks.chain(parting.map(|(event, _)| event));
        events.collect()
    }
}

fn event_key(event: CUevent) -> Key {
    Key::new(Kind::Event, event.0 as u64)
}

/// Something is on the list until this goes. That is before it is destroyed.
pub(crate) struct Listed {
    state: Arc<ContextState>,
    list: fn(&ContextState) -> &List,
    number: u64,
    key: Key,
    /// Of a stream.
    notes: Arc<FreeProgress>,
}

impl std::fmt::Debug for Listed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "number {} of {:?}", self.number, self.state)
    }
}

impl Listed {
    pub(crate) fn new(
        state: &Arc<ContextState>,
        list: fn(&ContextState) -> &List,
        key: Key,
    ) -> Self {
        let notes = Arc::<FreeProgress>::default();
        let mut entries = list(state).lock();
        entries.next += 1;
        let number = entries.next;
        entries.all.insert(number, (key, notes.clone()));
        drop(entries);
        Self {
            state: state.clone(),
            list,
            number,
            key,
            notes,
        }
    }

    pub(crate) fn state(&self) -> &Arc<ContextState> {
        &self.state
    }

    /// Remembers that so much memory was freed on a stream.
    #[inline]
    pub(crate) fn note_free(&self, bytes: u64) {
        self.notes.add(bytes);
    }

    /// What was freed so far, for who waits by an event.
    pub(crate) fn moment(&self) -> (Arc<FreeProgress>, FreePoint) {
        (self.notes.clone(), self.notes.now())
    }

    /// Has `wait` wait for the stream.
    pub(crate) fn note_wait<T, E>(&self, wait: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        self.notes.note_wait(wait)
    }

    /// Leaves a mark in a stream that goes while it has frees to do. (What it has done comes back with
    /// it.) Where that cannot be, nobody can wait for them.
    fn leave_mark(&self) {
        // Less than a page is nothing to wait for.
        let unseen = self.notes.unseen();
        if unseen < PAGE {
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
        let Ok(mark) = event::create(flags::EVENT_DISABLE_TIMING) else {
            return;
        };
        // SAFETY: both are alive, and of one context.
        if unsafe { event::record(mark, stream) }.is_ok() {
            let mut entries = self.state.streams.lock();
            entries.parting.insert(self.number, (mark, unseen));
        } else {
            // SAFETY: nobody else knows of it.
            let _ = unsafe { destroy_event(&self.state, mark) };
        }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        // In a forked child the lock may be held by a thread that is not there; and once the process
        // ends nothing is destroyed.
        if process::is_exiting() {
            return;
        }
        sweep(&self.state);
        self.leave_mark();
        let mut entries = (self.list)(&self.state).lock();
        entries.all.remove(&self.number);
    }
}

/// Has `wait` wait for the driver's context: for all of its streams, whoever else holds it too.
pub(crate) fn note_context_wait<T, E>(
    state: &ContextState,
    wait: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let mut moments = Vec::new();
    let mut contexts = open_contexts::on_device(state.device);
    contexts.retain(|other| other.context == state.context);
    for other in contexts {
        for (_, notes) in other.streams.lock().all.values() {
            moments.push((notes.clone(), notes.now()));
        }
    }
    let answer = wait();
    if answer.is_ok() {
        moments
            .iter()
            .for_each(|(notes, moment)| notes.see(*moment));
    }
    answer
}

/// Destroys the marks of streams that are gone which the device has passed. Answers how many are left,
/// and the bytes behind them.
pub(crate) fn sweep(state: &ContextState) -> (u64, u64) {
    if state.streams.lock().parting.is_empty() {
        return (0, 0);
    }
    let Ok(_entered) = state.enter(OPERATION) else {
        return (0, 0);
    };
    let mut passed = Vec::new();
    let mut entries = state.streams.lock();
    entries.parting.retain(|_, (event, _)| {
        // SAFETY: it is alive, as it is on the list.
        let waits = unsafe { event::query(*event) } == Ok(false);
        if !waits {
            passed.push(*event);
        }
        waits
    });
    let bytes = entries.parting.values().map(|(_, bytes)| *bytes);
    let bytes = bytes.fold(0, u64::saturating_add);
    let left = (entries.parting.len() as u64, bytes);
    drop(entries);
    for event in passed {
        // SAFETY: nobody else knows of it any more, and its context is current.
        let _ = unsafe { destroy_event(state, event) };
    }
    left
}

/// Destroys an event that has no guard. A refused free is recorded.
///
/// # Safety
///
/// It is alive, nobody uses it, and its context is current.
pub(crate) unsafe fn destroy_event(state: &ContextState, event: CUevent) -> result::Result {
    // SAFETY: as the caller ensures.
    let destroyed = unsafe { free::free(event_key(event), CUstream::NULL) };
    if let Err(error) = destroyed {
        record_event(state, event, error);
    }
    destroyed
}

/// Records an event that could not be destroyed.
pub(crate) fn record_event(state: &ContextState, event: CUevent, error: CallError) {
    state.record_failed_free(event_key(event), 0, None, error);
}
