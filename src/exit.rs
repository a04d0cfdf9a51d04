//! The end of the process: contexts that were never closed are reported from the registry, and
//! nothing calls the driver any more.
//!
//! A driver library may crash when it is called late in an exit, after its own clean-up. So from
//! the first exit handler on, guards that still go do nothing (law 7).

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use cuguard_registry::{Snapshot, note_exit};

use crate::core::deferred;
use crate::core::open_contexts::{self, LateContext};
use cuguard_report as report;
use cuguard_sync::fence;
use cuguard_sync::process;

/// Keeps the library that this crate is in loaded, where it is not in the program itself: threads
/// may still run its code, and the report is for the end of the process.
fn stay_loaded() {
    // SAFETY: plain data, for which zero is a value.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address of a function, and a variable that can be written to.
    let found = unsafe { libc::dladdr(at_exit as *const libc::c_void, &mut info) };
    if found != 0 && !info.dli_fname.is_null() {
        let flags = libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
        // SAFETY: the name of a library that is loaded; of the program itself it finds nothing.
        let _ = unsafe { libc::dlopen(info.dli_fname, flags) };
    }
}

/// Installs the exit handler, once. Before the first context is opened.
pub(crate) fn install() {
    static HANDLER: Once = Once::new();
    HANDLER.call_once(|| {
        OWNER.store(std::process::id(), Ordering::Release);
        stay_loaded();
        // Registered after the driver was loaded, so it runs before the handlers that the driver
        // registered when it was.
        // SAFETY: the function takes nothing, returns nothing and does not unwind.
        let refused = unsafe { libc::atexit(at_exit) };
        if refused != 0 {
            log::warn!("cuguard: no exit handler could be registered; contexts that are never closed go unreported");
        }
    });
}

/// Tells of guards that went after their contexts.
fn tell_late() {
    for LateContext { info, report, late } in open_contexts::take_late() {
        let drops = late.take();
        if !drops.is_empty() {
            report::emit(&Snapshot::of_late_drops(info, drops), &report, true);
        }
    }
}

/// The process that registered the handler.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// How long the exit waits for what other threads have under way. An operation that waits for the
/// device may take for ever, and the exit must come.
const PATIENCE: Duration = Duration::from_millis(250);

/// How long it waits for a report that another thread is writing.
const PATIENCE_TO_TELL: Duration = Duration::from_secs(5);

/// Reports all contexts that are still open, once nothing calls the driver any more.
fn end() {
    let until = Instant::now() + PATIENCE;
    // Kept until they are told of, also if their guards and their context go meanwhile.
    let mut known = open_contexts::all();
    for state in &known {
        let _ = state.wait_for_other_teardown(until);
    }
    process::set(process::EXITING);
    note_exit();
    // Who is inside a gate and has not seen this is seen there.
    fence::heavy();
    let until = Instant::now() + PATIENCE;
    open_contexts::drain_opening(until);
    known.retain(|state| !state.is_reported());
    for state in open_contexts::all() {
        if !known.iter().any(|one| Arc::ptr_eq(one, &state)) {
            known.push(state);
        }
    }
    known.iter().for_each(|state| state.gate.drain(until));
    deferred::abandon();
    known.iter().for_each(|state| state.report_once());
    let until = Instant::now() + PATIENCE_TO_TELL;
    known.iter().for_each(|state| state.wait_for_report(until));
    tell_late();
    report::finish();
}

extern "C" fn at_exit() {
    // A forked child has none of these contexts, and its locks may be held for ever. The flag alone
    // does not know of children that came about without the C library's `fork`, nor the number of the
    // first process in a namespace of its own: both are 1 then.
    if process::is_forked() || OWNER.load(Ordering::Acquire) != std::process::id() {
        process::set(process::EXITING);
        return;
    }
    // A panic must not unwind into the C library; what it would say has been printed then.
    let reported = std::panic::catch_unwind(end);
    process::set(process::EXITING);
    if reported.is_ok()
        && let Some(code) = report::exit_code()
    {
        // SAFETY: flushing all C streams and ending at once are allowed in an exit handler. What
        // other handlers would have done is given up for the exit code that was asked for.
        unsafe {
            libc::fflush(std::ptr::null_mut());
            libc::_exit(code);
        }
    }
}
