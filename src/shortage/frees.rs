//! Frees that streams have to do: whether there are any, and to wait for them.
//!
//! What is freed on a stream comes back to the device, or to whoever else asks, when two things have
//! happened: the stream has got there, and *somebody has waited* for it, or for an event after the
//! free, or for the context. To ask whether it is done, to let time pass, or to trim the pool does
//! nothing. (The conformance suite holds drivers to that.) So a stream that is long idle may keep any
//! amount of memory away, and a mark that the device has passed is waited for although it is passed.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cuguard_driver::api;
use cuguard_driver::sys::{CUevent, CUresult, CUstream, flags};

use super::{OPERATION, contexts_on, pools};
use crate::custody::Custody;
use crate::error::Error;
use crate::exit;
use crate::raw;
use crate::registry::{FailedFree, Key, Kind};

/// The streams, or the pools, of a context that are there, by the order in which they were made.
/// Nothing is destroyed while the list is locked, so what is in it can be used.
#[derive(Default)]
pub(crate) struct List(Mutex<Entries>);

#[derive(Default)]
pub(super) struct Entries {
    next: u64,
    pub(super) all: BTreeMap<u64, (Key, Arc<AtomicBool>)>,
    /// When the last stream went that had frees to do: they come without anybody being able to ask for
    /// them.
    lost: Option<Instant>,
    /// The events of [marks](Mark) in the streams.
    marks: BTreeMap<u64, CUevent>,
}

impl List {
    pub(super) fn lock(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has `wait` wait for all of the streams. Where it got there, nothing that was freed before is
    /// left to wait for.
    pub(crate) fn note_wait<T, E>(&self, wait: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let mut noted = Vec::new();
        for (_, unseen) in self.lock().all.values() {
            if unseen.swap(false, Relaxed) {
                noted.push(unseen.clone());
            }
        }
        let answer = wait();
        if answer.is_err() {
            noted.iter().for_each(|unseen| unseen.store(true, Relaxed));
        }
        answer
    }

    /// Takes the events of marks that others wait for. The gate is closed, and the device has nothing
    /// left to do: for them that is as good as that it passed.
    pub(crate) fn take_marks(&self) -> Vec<Key> {
        let marks = std::mem::take(&mut self.lock().marks);
        marks.into_values().map(event_key).collect()
    }
}

fn event_key(event: CUevent) -> Key {
    Key::new(Kind::Event, event.0 as u64)
}

/// Something is on the list until this goes. That is before it is destroyed.
pub(crate) struct Listed {
    custody: Arc<Custody>,
    list: fn(&Custody) -> &List,
    number: u64,
    key: Key,
    /// Of a stream: memory was freed on it since somebody waited for it.
    unseen: Arc<AtomicBool>,
}

impl std::fmt::Debug for Listed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "number {} of {:?}", self.number, self.custody)
    }
}

impl Listed {
    pub(crate) fn new(custody: &Arc<Custody>, list: fn(&Custody) -> &List, key: Key) -> Self {
        let unseen = Arc::new(AtomicBool::new(false));
        let mut entries = list(custody).lock();
        entries.next += 1;
        let number = entries.next;
        entries.all.insert(number, (key, unseen.clone()));
        drop(entries);
        Self {
            custody: custody.clone(),
            list,
            number,
            key,
            unseen,
        }
    }

    /// Remembers that memory was freed on a stream. After the free: who takes the note back and then
    /// marks the stream marks it after the free, too.
    #[inline]
    pub(crate) fn note_free(&self) {
        // Mostly it is set already, and then nothing is written.
        if !self.unseen.load(Relaxed) {
            self.unseen.store(true, Relaxed);
        }
    }

    /// Has `wait` wait for the stream. Where it got there, nothing that was freed before is left to
    /// wait for.
    pub(crate) fn note_wait<T, E>(&self, wait: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let noted = self.unseen.swap(false, Relaxed);
        let answer = wait();
        if noted && answer.is_err() {
            self.note_free();
        }
        answer
    }

    /// Whether the stream, which is about to go, still has frees to do. What it has done comes back
    /// with it.
    fn is_busy(&self) -> bool {
        if !self.unseen.load(Relaxed) {
            return false;
        }
        let Ok(_entered) = self.custody.enter(OPERATION) else {
            return false;
        };
        let stream = CUstream(self.key.address as usize);
        // SAFETY: it is destroyed after this.
        unsafe { api::cuStreamQuery(stream) == CUresult::NOT_READY }
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        // In a forked child the lock may be held by a thread that is not there; and once the process
        // ends nothing is destroyed.
        if exit::is_exiting() {
            return;
        }
        let busy = self.is_busy();
        let mut entries = (self.list)(&self.custody).lock();
        entries.all.remove(&self.number);
        if busy {
            entries.lost = Some(Instant::now());
        }
    }
}

/// How many streams of the device's contexts have frees that they have not done, or that nobody has
/// waited for.
pub(super) fn pending_streams(device: u32) -> u64 {
    let mut pending = 0;
    for custody in contexts_on(device) {
        let entries = custody.streams.lock();
        let unseen = entries.all.values().filter(|(_, it)| it.load(Relaxed));
        pending += unseen.count() as u64;
    }
    pending
}

/// A mark in a stream: all that the stream was given before is done when the device gets there.
///
/// Its event is on the list of its context's streams until it is destroyed, so that a context that is
/// closed meanwhile takes it with it.
struct Mark {
    custody: Arc<Custody>,
    number: u64,
    /// The stream's note of frees, until they are seen.
    unseen: Option<Arc<AtomicBool>>,
}

impl Mark {
    /// Marks the streams of a context on which memory was freed that nobody has waited for. Also tells
    /// how many could not be marked.
    fn all(custody: &Arc<Custody>) -> (Vec<Self>, u64) {
        let (mut marks, mut failed, mut unmarked) = (Vec::new(), Vec::new(), 0);
        let Ok(entered) = custody.enter(OPERATION) else {
            return (marks, unmarked);
        };
        let mut entries = custody.streams.lock();
        let Entries {
            next,
            all,
            marks: events,
            ..
        } = &mut *entries;
        for (key, unseen) in all.values() {
            // Cleared before the mark is made: a free that comes in between sets it again.
            if !unseen.swap(false, Relaxed) {
                continue;
            }
            let mut event = CUevent::NULL;
            // SAFETY: the variable can be written to, and the context is current.
            let made = unsafe { api::cuEventCreate(&mut event, flags::EVENT_DISABLE_TIMING) };
            if !made.is_success() {
                unseen.store(true, Relaxed);
                unmarked += 1;
                continue;
            }
            *next += 1;
            events.insert(*next, event);
            let mark = Self {
                custody: custody.clone(),
                number: *next,
                unseen: Some(unseen.clone()),
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
    fn is_done(&mut self) -> bool {
        let event = self.custody.streams.lock().marks.get(&self.number).copied();
        let Some(event) = event else {
            // Teardown took it, when the device had nothing left to do.
            self.unseen = None;
            return true;
        };
        match self.custody.enter(OPERATION) {
            Ok(_entered) => {
                // SAFETY: the event is alive: teardown, who else destroys it, waits for who is inside,
                // and had not begun when this one came in.
                let code = unsafe { api::cuEventQuery(event) };
                if code.is_success() {
                    // SAFETY: as before.
                    let seen = unsafe { api::cuEventSynchronize(event) };
                    if seen.is_success() {
                        self.unseen = None;
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
        if let Some(unseen) = &self.unseen {
            unseen.store(true, Relaxed);
        }
        let entered = self.custody.enter(OPERATION);
        let refused = match &entered {
            Ok(_) => None,
            Err(error) => match error.code() {
                Some(code) => Some(code),
                // Teardown takes it; and at the end of the process nobody is asked.
                None => return,
            },
        };
        let event = self.custody.streams.lock().marks.remove(&self.number);
        let Some(event) = event else {
            return;
        };
        match refused {
            // SAFETY: nobody else knows of it any more, and its context is current.
            None => unsafe { give_up(&self.custody, event_key(event)) },
            Some(code) => file(&self.custody, event_key(event), "cuCtxPushCurrent", code),
        }
    }
}

/// Destroys the event of a mark. What the driver refuses is filed.
///
/// # Safety
///
/// It is alive, nobody uses it, and its context is current.
pub(crate) unsafe fn give_up(custody: &Custody, key: Key) {
    // SAFETY: as the caller promises.
    let code = unsafe { raw::free(key, CUstream::NULL) };
    if !code.is_success() {
        file(custody, key, raw::function(Kind::Event), code);
    }
}

/// Files an event that could not be destroyed.
pub(crate) fn file(custody: &Custody, key: Key, function: &'static str, code: CUresult) {
    let failed = FailedFree::new(key, 0, None, function, code.0, code.to_string());
    custody.registry.file_failed_free(failed);
}

/// When a stream went that had frees to do, if that was a moment ago: nobody can ask for those.
fn lost_frees(contexts: &[Arc<Custody>]) -> Option<Instant> {
    let lost = contexts
        .iter()
        .filter_map(|custody| custody.streams.lock().lost);
    lost.filter(|lost| lost.elapsed() < LOST).max()
}

/// How long frees are waited for whose stream is gone.
const LOST: Duration = Duration::from_millis(500);

/// Waits for the frees that streams have to do now, for so long at most. `None` where there are none
/// that could bring anything; else how many streams have not got there.
pub(super) fn wait_for_frees(custody: &Arc<Custody>, most: Duration) -> Option<u64> {
    let unused = || -> u64 {
        let pools = pools::pools(custody);
        let unused = pools.iter().map(|pool| pool.unused());
        unused.fold(0, u64::saturating_add)
    };
    let before = unused();
    if before == 0 {
        return None;
    }
    let contexts = contexts_on(custody.device);
    let lost = lost_frees(&contexts);
    let mut marks = Vec::new();
    let mut unmarked = 0;
    for custody in &contexts {
        let (more, failed) = Mark::all(custody);
        marks.extend(more);
        unmarked += failed;
    }
    if marks.is_empty() && unmarked == 0 && lost.is_none() {
        return None;
    }
    let begin = Instant::now();
    let mut pause = Duration::from_micros(20);
    // Nobody is kept from making and destroying streams meanwhile.
    loop {
        marks.retain_mut(|mark| !mark.is_done());
        let is_lost = lost.is_some_and(|lost| lost.elapsed() < LOST) && unused() >= before;
        let in_vain = begin.elapsed() >= most || exit::is_exiting() || custody.is_closed();
        if in_vain || (marks.is_empty() && !is_lost) {
            break;
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(2));
    }
    Some(marks.len() as u64 + unmarked)
}
