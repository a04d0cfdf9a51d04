//! Streams of other contexts whose work uses memory of a context.
//!
//! The stream of a scope that uses memory of another context is on the list of that context until the scope has ended: if the
//! context is closed meanwhile, teardown waits for the work of the streams on the list before it frees the memory.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cuguard_driver::result::stream;
use cuguard_driver::sys::CUresult;
use cuguard_sync::process;

use crate::core::owned::free_event::FreeEvent;
use crate::core::owned::ownership::StreamState;
use crate::core::release::wait::{WaitFailures, abort};
use crate::core::shared::context_state::ContextState;
use crate::core::shared::lock::lock;

/// The lists of all contexts that have one, by number. Each has a lock of its own: it is held in calls that may wait for a context.
static LISTS: Mutex<BTreeMap<u64, Arc<List>>> = Mutex::new(BTreeMap::new());

#[derive(Default)]
struct List(Mutex<Streams>);

#[derive(Default)]
struct Streams {
    next: u64,
    live: BTreeMap<u64, Listed>,
}

fn list_of(state: &ContextState) -> Option<Arc<List>> {
    lock(&LISTS).get(&state.number).cloned()
}

struct Listed {
    stream: Arc<StreamState>,
    /// Whether it uses device memory, and not only host memory. Compaction moves device memory.
    device_memory: bool,
}

/// Keeps a stream on the list of another context.
pub(crate) struct PeerUse {
    state: Arc<ContextState>,
    list: Arc<List>,
    number: u64,
}

impl std::fmt::Debug for PeerUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "use of {:?}", self.state)
    }
}

impl PeerUse {
    /// The caller is inside the gate of the context: work that uses its memory is enqueued later, inside the gate again.
    pub(crate) fn new(state: &Arc<ContextState>, stream: &Arc<StreamState>) -> Self {
        let list = lock(&LISTS).entry(state.number).or_default().clone();
        let mut streams = lock(&list.0);
        streams.next += 1;
        let number = streams.next;
        let listed = Listed {
            stream: stream.clone(),
            device_memory: false,
        };
        streams.live.insert(number, listed);
        drop(streams);
        Self {
            state: state.clone(),
            list,
            number,
        }
    }

    pub(crate) fn is_of(&self, state: &Arc<ContextState>) -> bool {
        Arc::ptr_eq(&self.state, state)
    }

    /// The stream uses device memory of the context, too. The caller is inside the gate.
    pub(crate) fn add_device_memory(&self) {
        let mut streams = lock(&self.list.0);
        if let Some(listed) = streams.live.get_mut(&self.number) {
            listed.device_memory = true;
        }
    }
}

impl Drop for PeerUse {
    fn drop(&mut self) {
        // In a forked child a thread that does not exist may hold the lock.
        if process::is_forked() {
            return;
        }
        let removed = lock(&self.list.0).live.remove(&self.number);
        // Without the lock: it may be the last reference, and tear a context down.
        drop(removed);
    }
}

/// Whether a stream of another context uses device memory of this one.
pub(in crate::core) fn use_device_memory(state: &ContextState) -> bool {
    let list = list_of(state);
    list.is_some_and(|list| lock(&list.0).live.values().any(|one| one.device_memory))
}

/// Waits for the work that streams on the list of a context have enqueued so far. Its gate is closed, so no more work is
/// enqueued that uses the memory, and no stream is added.
pub(in crate::core) fn wait(state: &ContextState, operation: &'static str) {
    let Some(list) = lock(&LISTS).remove(&state.number) else {
        return;
    };
    let numbers: Vec<u64> = lock(&list.0).live.keys().copied().collect();
    for number in numbers {
        wait_for(&list, number, operation);
    }
}

fn wait_for(list: &List, number: u64, operation: &'static str) {
    let mut failures = WaitFailures::default();
    let mut pause = SHORTEST_PAUSE;
    // Recorded once the stream is found working: it may be given other work without an end.
    let mut event = None;
    while !process::is_exiting() {
        let progress = match event.as_ref().map(FreeEvent::has_passed) {
            Some(Ok(true)) => return,
            Some(Ok(false)) => Progress::Working,
            Some(Err(_)) | None => {
                // With the list locked, because a scope removes its stream from it before it ends. A reference would
                // not do: the program destroys a stream that it borrowed once the scope has ended.
                let streams = lock(&list.0);
                let Some(Listed { stream, .. }) = streams.live.get(&number) else {
                    return;
                };
                let progress = progress_of(stream, operation);
                if let Progress::Working | Progress::Refused(_) = progress {
                    event = FreeEvent::record_in(stream);
                }
                match event {
                    // Nothing else reports whether it works.
                    None if stream.is_per_thread() => Progress::Refused(vec![CUresult::UNKNOWN]),
                    _ => progress,
                }
            }
        };
        match progress {
            Progress::Done => return,
            Progress::Working => {
                failures = WaitFailures::default();
                std::thread::sleep(pause);
                pause = (pause * 2).min(WaitFailures::PAUSE);
            }
            // The next attempt is at the event, if there is one.
            Progress::Refused(codes) => {
                if failures.is_dead_after(operation, &codes) {
                    return;
                }
            }
            Progress::Closed(state) => return wait_for_idle_device(&state, operation),
        }
    }
}

/// The time between two queries of a stream, at first.
const SHORTEST_PAUSE: Duration = Duration::from_micros(20);

/// What is known of the work of a stream.
enum Progress {
    Done,
    Working,
    /// Errors of the stream's context, whose scope returns them.
    Refused(Vec<CUresult>),
    /// The context of the stream is closed.
    Closed(Arc<ContextState>),
}

/// Whether a stream that is alive has done its work. Does not wait for the device.
fn progress_of(stream: &StreamState, operation: &'static str) -> Progress {
    let Ok((_entered, made_current)) = stream.state().enter_any_context(operation) else {
        return Progress::Closed(stream.state().clone());
    };
    let refusal = made_current.err().map(|error| error.code);
    let query = match refusal {
        Some(_) => stream.query_elsewhere(),
        // A query would be of this thread's own.
        None if stream.is_per_thread() => return Progress::Working,
        // SAFETY: the stream is alive.
        None => unsafe { stream::query(stream.handle()) }.map_err(|error| error.code),
    };
    match query {
        Ok(true) => Progress::Done,
        Ok(false) => Progress::Working,
        Err(code) => Progress::Refused(refusal.into_iter().chain([code]).collect()),
    }
}

/// The context of the stream is closed. Its teardown waits for the device before it waits for anything else, so two
/// contexts that are closed at once do not wait for each other.
fn wait_for_idle_device(state: &ContextState, operation: &'static str) {
    loop {
        let is_done = state.wait_for_other_teardown(Instant::now() + WaitFailures::PAUSE);
        if state.device_idle.load(Ordering::Acquire) || process::is_exiting() {
            return;
        }
        if is_done {
            abort(
                operation,
                "a stream of another context used memory of this one, and the driver refused to say whether it has \
                 done its work",
            );
        }
    }
}
