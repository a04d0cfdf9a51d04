//! The life of the process: the library is loaded, the driver is used, the process forks, it ends. One report, however
//! it ends.
//!
//! ```text
//!   exit, return from main ── atexit ──┐
//!   quick_exit ── at_quick_exit ───────┤
//!   _exit, _Exit ── exported ──────────┼── finish ──► reporting thread ──► report::make ──► output
//!   exec… ── exported ─────────────────┤      │
//!   abort, raise ── handler ───────────┘      └── waits, with a time limit
//!   SIGTERM … ── handler ── request_death ──► the reporting thread, which ends the process; a timer does where it hangs
//! ```
//!
//! - [`exiting`] handles the beginning of the exit, when the search runs.
//! - [`constructor`] is the library's constructor. Its exit handler is registered before the loader's, so it runs after
//!   the destructors of all libraries.
//! - [`reporter`] owns the thread that makes the report: a signal handler must not allocate or lock, and a report that
//!   hangs must not keep the process from ending.
//! - [`signals`] handles signals whose disposition is the default, and hides its handlers from the program;
//!   [`deadline`] ends the process where the report after a signal takes too long.
//! - [`functions`] exports `_exit` and the exec functions, [`forked`] is the child after `fork`.
//! - [`live`] reports the process while it runs.
//!
//! A process that never calls a recorded function of the driver writes nothing. Nothing here calls the driver, and
//! nothing here knows what a report says.

#![cfg_attr(
    test,
    allow(
        dead_code,
        reason = "unit tests do not export functions in front of the C library"
    )
)]

mod call;
mod constructor;
mod deadline;
mod death;
mod exiting;
mod forked;
mod functions;
mod futex;
mod linker;
mod live;
mod reporter;
mod requested;
mod signals;

use std::sync::atomic::Ordering;

use cuguard_registry::TrackingLevel;

use crate::output::{recording, run_folder};
use crate::process::driver_use::{self, FORKED, NEW, PREPARING, UNUSED, USED};
use crate::process::{facts, settings};

/// Notes that the process uses the driver. Every recorded function calls this first; after the first call it is one load.
/// Returns whether the call is recorded.
#[inline]
pub(crate) fn used() -> bool {
    driver_use::get().load(Ordering::Relaxed) == USED || prepare()
}

/// Whether calls are recorded already.
#[inline]
pub(crate) fn is_recorded() -> bool {
    driver_use::get().load(Ordering::Relaxed) == USED
}

/// Whether this is a forked child of a process that used the driver.
#[inline]
pub(crate) fn is_forked() -> bool {
    match driver_use::get().load(Ordering::Relaxed) {
        FORKED => true,
        NEW => forked::is_child_of_user(),
        _ => false,
    }
}

/// Prepares the report: the settings, the thread and the signal handlers.
#[cold]
fn prepare() -> bool {
    if !forked::claim_copy() {
        if !facts::is_own_process() {
            return false;
        }
        let word = driver_use::get();
        let claimed = word.compare_exchange(UNUSED, PREPARING, Ordering::AcqRel, Ordering::Acquire);
        if let Err(state) = claimed {
            return state == PREPARING || state == USED;
        }
    }
    driver_use::note_use();
    // Nothing may unwind into the program.
    let _ = std::panic::catch_unwind(|| {
        let settings = settings::get();
        if !settings.wanted_python() {
            crate::python::turn_off();
        }
        crate::python::call_at_exit(exiting::begin);
        crate::origin::set_level(settings.wanted_level().unwrap_or(TrackingLevel::Stacks));
        crate::state::call_before_first(recording::begin);
        run_folder::note_use();
        reporter::launch();
        live::start(settings);
        signals::install();
        exiting::register();
    });
    driver_use::get().store(USED, Ordering::Release);
    true
}

/// A call of the driver begins. Returns whether it is not inside another one.
#[inline]
pub(crate) fn call_begins() -> bool {
    !call::enter()
}

/// A call for which [`call_begins`] returned true ends. If a signal came during the call, the thread waits here for its report
/// and its end.
#[inline]
pub(crate) fn call_ends() {
    call::leave();
    if reporter::death() != 0 {
        signals::wait_and_die(reporter::death());
    }
}
