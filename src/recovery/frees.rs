//! Frees that streams have to do: whether there are any, and to wait for them.
//!
//! What is freed on a stream comes back to the device, or to whoever else asks, when two things have
//! happened: the stream has got there, and *somebody has waited* for it, or for an event after the
//! free, or for the context. To ask whether it is done, to let time pass, or to trim the pool does
//! nothing. (The conformance suite holds drivers to that.) So a stream that is long idle may keep any
//! amount of memory away, and a mark that the device has passed is waited for although it is passed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cuguard_driver::result::event;
use cuguard_driver::sys::{CUstream, flags};

use super::{OPERATION, pools};
use crate::core::open_contexts::on_device;
use crate::core::stream_list::{Entries, destroy_event, record_event, sweep};
use crate::core::{ContextState, FreePoint, FreeProgress};
use crate::error::Error;
use cuguard_sync::process;

/// How many streams of the device's contexts have frees that they have not done, or that nobody has
/// waited for; and at most how many bytes these are.
pub(super) fn pending(device: u32) -> (u64, u64) {
    let (mut streams, mut bytes) = (0_u64, 0_u64);
    for state in on_device(device) {
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
            let Ok(event) = event::create(flags::EVENT_DISABLE_TIMING) else {
                unmarked += 1;
                continue;
            };
            *next += 1;
            events.insert(*next, event);
            let mark = Self {
                state: state.clone(),
                number: *next,
                notes: notes.clone(),
                moment,
            };
            // SAFETY: the stream is on the list, so it is alive; and both are of one context.
            let recorded = unsafe { event::record(event, CUstream(key.address as usize)) };
            if recorded.is_ok() {
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
                let passed = unsafe { event::query(event) };
                // SAFETY: as before.
                if passed == Ok(true) && unsafe { event::synchronize(event) }.is_ok() {
                    self.notes.see(self.moment);
                }
                passed != Ok(false)
            }
            // Teardown is about to take it.
            Err(Error::ContextClosed { .. }) => false,
            Err(_) => true,
        }
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        // Where the context is closed, teardown destroys it; and at exit nothing calls the driver.
        let Ok((_entered, current)) = self.state.enter_uncurrent(OPERATION) else {
            return;
        };
        let event = self.state.streams.lock().marks.remove(&self.number);
        let Some(event) = event else {
            return;
        };
        match current {
            // SAFETY: nobody else knows of it any more, and its context is current.
            Ok(()) => drop(unsafe { destroy_event(&self.state, event) }),
            Err(error) => record_event(&self.state, event, error),
        }
    }
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
    let contexts = on_device(state.device);
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
        let in_vain = begin.elapsed() >= most || process::is_exiting() || state.is_closed();
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
