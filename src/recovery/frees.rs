//! Frees that streams have to do: whether there are any, and to wait for them.
//!
//! What is freed on a stream comes back to the device, or to whoever else asks, when two things have
//! happened: the stream has got there, and *somebody has waited* for it, or for an event after the
//! free, or for the context. To ask whether it is done, to let time pass, or to trim the pool does
//! nothing. (The conformance suite holds drivers to that.) So a stream that is long idle may keep any
//! amount of memory away, and a mark that the device has passed is waited for although it is passed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cuguard_driver::api;
use cuguard_driver::sys::{CUevent, CUresult, CUstream, flags};

use super::free_progress::{FreePoint, FreeProgress};
use super::{OPERATION, contexts_on, pools};
use crate::context_state::ContextState;
use crate::error::Error;
use crate::exit;
use crate::free;
use cuguard_registry::{FailedFree, Key, Kind, PAGE};

/// The streams, or the pools, of a context that are there, by the order in which they were made.
/// Nothing is destroyed while the list is locked, so what is in it can be used.
#[derive(Default)]
pub(crate) struct List(Mutex<Entries>);

#[derive(Default)]
pub(super) struct Entries {
    next: u64,
    pub(super) all: BTreeMap<u64, (Key, Arc<FreeProgress>)>,
    /// The events of [marks](Mark) in the streams.
    marks: BTreeMap<u64, CUevent>,
    /// What streams had to do that are gone: an event after it, and the bytes that were freed. They come
    /// back by themselves when the device gets there.
    parting: BTreeMap<u64, (CUevent, u64)>,
}

impl List {
    pub(super) fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the events of marks that others wait for, and of streams that are gone. The gate is closed,
    /// and the device has nothing left to do: for them that is as good as that it passed.
    pub(crate) fn take_marks(&self) -> Vec<Key> {
        let mut entries = self.lock();
        let marks = std::mem::take(&mut entries.marks).into_values();
        let parting = std::mem::take(&mut entries.parting).into_values();
        let events = marks.chain(parting.map(|(event, _)| event));
        events.map(event_key).collect()
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
        if unsafe { api::cuStreamQuery(stream) } != CUresult::NOT_READY {
            return;
        }
        let mut event = CUevent::NULL;
        // SAFETY: the variable can be written to, and the context is current.
        let made = unsafe { api::cuEventCreate(&mut event, flags::EVENT_DISABLE_TIMING) };
        if !made.is_success() {
            return;
        }
        // SAFETY: both are alive, and of one context.
        if unsafe { api::cuEventRecord(event, stream) }.is_success() {
            let mut entries = self.state.streams.lock();
            entries.parting.insert(self.number, (event, unseen));
        } else {
            // SAFETY: nobody else knows of it.
            unsafe { give_up(&self.state, event_key(event)) };
        }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        // In a forked child the lock may be held by a thread that is not there; and once the process
        // ends nothing is destroyed.
        if exit::is_exiting() {
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
    let mut contexts = contexts_on(state.device);
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
        let waits = unsafe { api::cuEventQuery(*event) } == CUresult::NOT_READY;
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
        unsafe { give_up(state, event_key(event)) };
    }
    left
}

/// How many streams of the device's contexts have frees that they have not done, or that nobody has
/// waited for; and at most how many bytes these are.
pub(super) fn pending(device: u32) -> (u64, u64) {
    let (mut streams, mut bytes) = (0_u64, 0_u64);
    for state in contexts_on(device) {
        let (gone, behind) = sweep(&state);
        (streams, bytes) = (streams + gone, bytes.saturating_add(behind));
        for (_, notes) in state.streams.lock().all.values() {
            let unseen = notes.unseen();
            streams += u64::from(unseen != 0);
            bytes = bytes.saturating_add(unseen);
        }
    }
    (streams, bytes)
}

/// A mark in a stream: all that the stream was given before is done when the device gets there.
///
/// Its event is on the list of its context's streams until it is destroyed, so that a context that is
/// closed meanwhile takes it with it.
struct Mark {
    state: Arc<ContextState>,
    number: u64,
    /// Where it is in its stream.
    notes: Arc<FreeProgress>,
    moment: FreePoint,
}

impl Mark {
    /// Marks the streams of a context on which memory was freed that nobody has waited for. Also tells
    /// how many could not be marked.
    fn all(state: &Arc<ContextState>) -> (Vec<Self>, u64) {
        let (mut marks, mut failed, mut unmarked) = (Vec::new(), Vec::new(), 0);
        let Ok(entered) = state.enter(OPERATION) else {
            return (marks, unmarked);
        };
        let mut entries = state.streams.lock();
        let Entries {
            next,
            all,
            marks: events,
            ..
        } = &mut *entries;
        for (key, notes) in all.values() {
            if notes.unseen() == 0 {
                continue;
            }
            // Before the mark is made, so that it is after all that is in the moment.
            let moment = notes.now();
            let mut event = CUevent::NULL;
            // SAFETY: the variable can be written to, and the context is current.
            let made = unsafe { api::cuEventCreate(&mut event, flags::EVENT_DISABLE_TIMING) };
            if !made.is_success() {
                unmarked += 1;
                continue;
            }
            *next += 1;
            events.insert(*next, event);
            let mark = Self {
                state: state.clone(),
                number: *next,
                notes: notes.clone(),
                moment,
            };
            // SAFETY: the stream is on the list, so it is alive; and both are of one context.
            let recorded = unsafe { api::cuEventRecord(event, CUstream(key.address as usize)) };
            if recorded.is_success() {
                marks.push(mark);
            } else {
                unmarked += 1;
                failed.push(mark);
            }
        }
        drop(entries);
        drop(entered);
        // They enter and lock by themselves.
        drop(failed);
        (marks, unmarked)
    }

    /// Whether the device has passed it. If so, that is waited for, which takes no time and is what
    /// brings the memory.
    fn is_done(&self) -> bool {
        let event = self.state.streams.lock().marks.get(&self.number).copied();
        let Some(event) = event else {
            // Teardown took it, when the device had nothing left to do.
            return true;
        };
        match self.state.enter(OPERATION) {
            Ok(_entered) => {
                // SAFETY: the event is alive: teardown, who else destroys it, waits for who is inside,
                // and had not begun when this one came in.
                let code = unsafe { api::cuEventQuery(event) };
                if code.is_success() {
                    // SAFETY: as before.
                    let seen = unsafe { api::cuEventSynchronize(event) };
                    if seen.is_success() {
                        self.notes.see(self.moment);
                    }
                }
                code != CUresult::NOT_READY
            }
            // Teardown is about to take it.
            Err(Error::ContextClosed { .. }) => false,
            Err(_) => true,
        }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        let entered = self.state.enter(OPERATION);
        let refused = match &entered {
            Ok(_) => None,
            Err(error) => match error.code() {
                Some(code) => Some(code),
                // Teardown takes it; and at the end of the process nobody is asked.
                None => return,
            },
        };
        let event = self.state.streams.lock().marks.remove(&self.number);
        let Some(event) = event else {
            return;
        };
        match refused {
            // SAFETY: nobody else knows of it any more, and its context is current.
            None => unsafe { give_up(&self.state, event_key(event)) },
            Some(code) => file(&self.state, event_key(event), "cuCtxPushCurrent", code),
        }
    }
}

/// Destroys the event of a mark. What the driver refuses is filed.
///
/// # Safety
///
/// It is alive, nobody uses it, and its context is current.
pub(crate) unsafe fn give_up(state: &ContextState, key: Key) {
    // SAFETY: as the caller promises.
    let code = unsafe { free::free(key, CUstream::NULL) };
    if !code.is_success() {
        file(state, key, free::function(Kind::Event), code);
    }
}

/// Files an event that could not be destroyed.
pub(crate) fn file(state: &ContextState, key: Key, function: &'static str, code: CUresult) {
    let failed = FailedFree::new(
        key,
        0,
        None,
        function,
        code.0,
        code.name().unwrap_or_default(),
    );
    state.registry.file_failed_free(failed);
}

/// Waits for the frees that streams have to do now, for so long at most, and looks each time that some
/// are done whether there is `enough`. False where there are none that could bring anything.
pub(super) fn wait_for_frees(
    state: &Arc<ContextState>,
    most: Duration,
    enough: &mut dyn FnMut() -> bool,
) -> bool {
    let pools = pools::pools(state);
    if pools.iter().all(|pool| pool.unused() == 0) && !pools::is_another_set(state) {
        return false;
    }
    let contexts = contexts_on(state.device);
    let mut marks = Vec::new();
    let mut any = false;
    for state in &contexts {
        let (more, unmarked) = Mark::all(state);
        marks.extend(more);
        any |= unmarked != 0;
    }
    // What streams have left that are gone now.
    let parting = || contexts.iter().map(|state| sweep(state).0).sum::<u64>();
    let mut left = marks.len() as u64 + parting();
    if left == 0 && !any {
        return false;
    }
    let begin = Instant::now();
    let mut pause = Duration::from_micros(20);
    // Nobody is kept from making and destroying streams meanwhile.
    loop {
        let before = left;
        marks.retain(|mark| !mark.is_done());
        left = marks.len() as u64 + parting();
        let in_vain = begin.elapsed() >= most || exit::is_exiting() || state.is_closed();
        let is_over = in_vain || left == 0;
        // Streams that are slow are not waited for where the others bring what is needed.
        let is_enough = (is_over || left < before) && enough();
        if is_over || is_enough {
            return true;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(2));
    }
}
