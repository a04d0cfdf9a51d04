//! The exit handler: it reports contexts that were never closed, from the registry. From then on nothing calls the
//! driver.
//!
//! A driver library may crash when it is called late in an exit, after its own clean-up. So guards that are dropped
//! after this handler do nothing (invariant 7).

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

use cuguard_registry::{Snapshot, note_exit};

use crate::core::deferred;
use crate::core::open_contexts::{self, LateContext};
use cuguard_report as report;
use cuguard_sync::fence;
use cuguard_sync::process;

/// Keeps the shared library that contains this crate loaded, if there is one: threads may still run its code, and the
/// exit handler must stay callable.
fn stay_loaded() {
    // SAFETY: plain data, for which zero is valid.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the address of a function, and a variable to write to.
    let found = unsafe { libc::dladdr(at_exit as *const libc::c_void, &mut info) };
    if found != 0 && !info.dli_fname.is_null() {
        let flags = libc::RTLD_NOW | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
        // SAFETY: the name of a loaded library; for the program itself this finds nothing.
        let _ = unsafe { libc::dlopen(info.dli_fname, flags) };
    }
}

/// Installs the exit handler, once. Called after the driver's first context exists and before the first `ContextState`
/// does: handlers run in reverse order, so this one runs before those that the driver has registered.
pub(crate) fn install() {
    static HANDLER: Once = Once::new();
    HANDLER.call_once(|| {
        OWNER.store(std::process::id(), Ordering::Release);
        stay_loaded();
        // SAFETY: the function takes nothing, returns nothing and does not unwind.
        let refused = unsafe { libc::atexit(at_exit) };
        if refused != 0 {
            log::warn!("cuguard: no exit handler could be registered; contexts that are never closed go unreported");
        }
    });
}

/// Reports guards that were dropped after their contexts.
fn report_late() {
    for LateContext { info, report, late } in open_contexts::take_late() {
        let drops = late.take();
        if !drops.is_empty() {
            report::emit(&Snapshot::of_late_drops(info, drops), &report, true);
        }
    }
}

/// The process that registered the handler.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Whether this process opens contexts: not before its first one, and not in a forked child, which has none of its parent's, and
/// where threads that do not exist may hold locks.
pub(crate) fn owns_contexts() -> bool {
    // Both checks are needed: a child that was not created by the C library's `fork` does not have the flag, and in a process
    // namespace of its own a child may have the same number, 1.
    !process::is_forked() && OWNER.load(Ordering::Acquire) == std::process::id()
}

/// How long the exit waits for operations of other threads. One that waits for the device may never end.
const PATIENCE: Duration = Duration::from_millis(250);

/// How long it waits for a report that another thread writes.
const REPORT_PATIENCE: Duration = Duration::from_secs(5);

/// Stops all driver calls and reports the contexts that are still open.
fn end() {
    cuguard_live::stop();
    let until = Instant::now() + PATIENCE;
    // Kept alive until they are reported, even if their last guards are dropped meanwhile.
    let mut known = open_contexts::all();
    for state in &known {
        let _ = state.wait_for_other_teardown(until);
    }
    // SAFETY: this is the exit handler.
    unsafe { process::begin_exit() };
    note_exit();
    // An operation that has not seen the flag is seen inside its gate.
    fence::heavy();
    let until = Instant::now() + PATIENCE;
    open_contexts::drain_process(until);
    for state in open_contexts::all() {
        if !known.iter().any(|one| Arc::ptr_eq(one, &state)) {
            known.push(state);
        }
    }
    known.iter().for_each(|state| state.gate.drain(until));
    deferred::abandon();
    known.iter().for_each(|state| state.report_once());
    let until = Instant::now() + REPORT_PATIENCE;
    known.iter().for_each(|state| state.wait_for_report(until));
    report_late();
    report::end_recording();
    report::announce_recording();
    report::finish();
}

extern "C" fn at_exit() {
    if !owns_contexts() {
        // SAFETY: this is the exit handler.
        unsafe { process::begin_exit() };
        return;
    }
    // A panic must not unwind into the C library; the panic hook has printed its message.
    let reported = std::panic::catch_unwind(end);
    // SAFETY: this is the exit handler.
    unsafe { process::begin_exit() };
    if reported.is_ok()
        && let Some(code) = report::exit_code()
    {
        // SAFETY: both are allowed in an exit handler. The remaining handlers are skipped, for the exit code that was
        // asked for.
        unsafe {
            libc::fflush(std::ptr::null_mut());
            libc::_exit(code);
        }
    }
}
