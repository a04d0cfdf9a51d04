//! The end of a process: one report, however the process ends.
//!
//! ```text
//!   exit, return from main ── atexit ──┐
//!   quick_exit ── at_quick_exit ───────┤
//!   _exit, _Exit ── exported ──────────┼── finish ──► reporting thread ──► report::make ──► output
//!   exec… ── exported ─────────────────┤      │
//!   SIGTERM, abort … ── handler ───────┘      └── waits, with a time limit
//! ```
//!
//! - [`exiting`] is the beginning of the exit, when the search is made.
//! - [`start`] is the library's constructor. Its exit handler is registered before the loader's, so it runs after the
//!   destructors of all libraries.
//! - [`reporter`] owns the thread that makes the report: a signal handler must not allocate or lock, and a report that
//!   hangs must not keep the process from ending.
//! - [`signals`] handles signals whose disposition is the default, and hides that from the program; [`deadline`] ends the
//!   process where the report after a signal takes too long.
//! - [`functions`] exports `_exit` and the exec functions, [`forked`] is the child after `fork`.
//! - [`state`] says whether the process uses the driver, also in a child that no handler of `fork` has run in.
//! - [`live`] reports the process while it runs.
//! - [`recording`] begins and ends the recording of the process.
//! - [`output`] writes the report, [`run_folder`] the record that `cuguard run` sums up.
//!
//! A process that never calls a recorded function of the driver writes nothing. Nothing here calls the driver, and nothing
//! here knows what a report says.

#![cfg_attr(
    test,
    allow(
        dead_code,
        reason = "unit tests do not export functions in front of the C library"
    )
)]

mod deadline;
mod exiting;
mod forked;
mod functions;
mod linker;
mod live;
mod made;
mod output;
mod reason;
mod recording;
mod reporter;
mod requested;
mod run_folder;
mod settings;
mod signals;
mod start;
mod state;
mod sticky;

use std::cell::Cell;
use std::sync::atomic::Ordering;

use cuguard_registry::Level;

pub(crate) use made::Made;
pub(crate) use reason::Reason;
pub(crate) use run_folder::note_crate;
pub(crate) use start::start;
use state::{FORKED, NEW, PREPARING, UNUSED, USED};
pub(crate) use sticky::{failed, failure};

/// Notes that the process uses the driver. Every recorded function calls this first; after the first call it is one load.
/// Returns whether the call is recorded.
#[inline]
pub(crate) fn used() -> bool {
    state::get().load(Ordering::Relaxed) == USED || prepare()
}

/// Whether calls are recorded already.
#[inline]
pub(crate) fn is_recorded() -> bool {
    state::get().load(Ordering::Relaxed) == USED
}

/// Whether this is a forked child of a process that used the driver.
#[inline]
pub(crate) fn is_forked() -> bool {
    match state::get().load(Ordering::Relaxed) {
        FORKED => true,
        NEW => forked::is_child_of_user(),
        _ => false,
    }
}

/// Prepares the report: the settings, the thread and the signal handlers.
#[cold]
fn prepare() -> bool {
    if !forked::claim_copy() {
        if !start::is_own_process() {
            return false;
        }
        let word = state::get();
        let claimed = word.compare_exchange(UNUSED, PREPARING, Ordering::AcqRel, Ordering::Acquire);
        if let Err(state) = claimed {
            return state == PREPARING || state == USED;
        }
    }
    state::note_use();
    // Nothing may unwind into the program.
    let _ = std::panic::catch_unwind(|| {
        let settings = settings::get();
        if !settings.wanted_python() {
            crate::python::turn_off();
        }
        crate::python::call_at_exit(exiting::begin);
        crate::origin::set_level(settings.wanted_level().unwrap_or(Level::Stacks));
        crate::state::call_before_first(recording::begin);
        run_folder::note_use();
        reporter::launch();
        live::start(settings);
        signals::install();
        exiting::register();
    });
    state::get().store(USED, Ordering::Release);
    true
}

thread_local! {
    /// Whether the calling thread is in a recorded call, and may hold locks of the records.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// A call of the driver begins. Returns whether it is not inside another one.
#[inline]
pub(crate) fn call_begins() -> bool {
    !INSIDE.replace(true)
}

/// A call for which [`call_begins`] returned true ends. If a signal came during the call, the thread waits here for its report
/// and its end.
#[inline]
pub(crate) fn call_ends() {
    INSIDE.set(false);
    if reporter::death() != 0 {
        signals::wait_and_die(reporter::death());
    }
}

/// Whether this process has used the driver. A child that shares its parent's memory (`vfork`) has not.
fn is_used() -> bool {
    state::get().load(Ordering::Acquire) == USED && start::is_own_process()
}

/// Reports the end of the process, unless there is nothing to report or that has been done. Returns when the report is
/// written or its time is over. Async-signal-safe.
fn finish(reason: Reason) {
    if is_used() {
        reporter::request(reason);
    }
}
