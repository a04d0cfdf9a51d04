//! The end of the process: contexts that were never closed are reported from the registry, and
//! nothing calls the driver any more.
//!
//! A driver library may crash when it is called late in an exit, after its own clean-up. So from
//! the first exit handler on, guards that still go do nothing (law 7).

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock, Mutex, Once, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::context_state::ContextState;
use crate::deferred;
use crate::error::{Error, Result};
use crate::gate::{Gate, GateGuard};
use cuguard_registry::{ContextInfo, Late, Snapshot, SnapshotReason, note_exit};
use cuguard_report::{self as report, ReportSettings};
use cuguard_sync::fence;
use cuguard_sync::process;
pub(crate) use cuguard_sync::process::{is_exiting, is_forked};

static OPEN: Mutex<Vec<Weak<ContextState>>> = Mutex::new(Vec::new());

/// Those who are just making a context, which has no gate of its own yet.
static MAKING: LazyLock<Gate> = LazyLock::new(Gate::default);

/// To be kept while a context is made: the end of the process waits for it.
pub(crate) fn making(operation: &'static str) -> Result<GateGuard<'static>> {
    let ending = Err(Error::ProcessEnding { operation });
    watch_forks();
    // A fork may have come while somebody made the gate.
    if is_exiting() {
        return ending;
    }
    let inside = MAKING.count_in();
    if is_exiting() { ending } else { Ok(inside) }
}

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

/// Remembers a context until it is closed.
pub(crate) fn remember(state: &Arc<ContextState>) {
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
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|state| state.strong_count() > 0);
    open.push(Arc::downgrade(state));
}

/// Forgets a context that is being closed.
pub(crate) fn forget(state: &ContextState) {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|known| !std::ptr::eq(known.as_ptr(), state));
}

/// What is to be told at the end of a context that was told of before. It is a few numbers and how
/// to tell them: nothing keeps the context's own state alive.
struct LateContext {
    info: ContextInfo,
    report: ReportSettings,
    late: Arc<Late>,
}

static LATE: Mutex<Vec<LateContext>> = Mutex::new(Vec::new());

/// Remembers that guards of a context go after it, if anybody wants to know.
pub(crate) fn remember_late(state: &ContextState) {
    let late = state.registry.late();
    if !state.report.is_on() || !late.is_new() {
        return;
    }
    let mut list = LATE.lock().unwrap_or_else(PoisonError::into_inner);
    list.push(LateContext {
        info: state.info(SnapshotReason::LateDrops),
        report: state.report.clone(),
        late: late.clone(),
    });
}

/// Tells of guards that went after their contexts.
fn tell_late() {
    let list = std::mem::take(&mut *LATE.lock().unwrap_or_else(PoisonError::into_inner));
    for LateContext { info, report, late } in list {
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

/// Contexts that are not yet told of.
pub(crate) fn open() -> Vec<Arc<ContextState>> {
    let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.iter().filter_map(Weak::upgrade).collect()
}

/// Reports all contexts that are still open, once nothing calls the driver any more.
fn end() {
    let until = Instant::now() + PATIENCE;
    // Kept until they are told of, also if their guards and their context go meanwhile.
    let mut known = open();
    for state in &known {
        let _ = state.let_teardown_end(until);
    }
    process::set(process::EXITING);
    note_exit();
    // Who is inside a gate and has not seen this is seen there.
    fence::heavy();
    let until = Instant::now() + PATIENCE;
    MAKING.drain(until);
    known.retain(|state| !state.is_told());
    for state in open() {
        if !known.iter().any(|one| Arc::ptr_eq(one, &state)) {
            known.push(state);
        }
    }
    known.iter().for_each(|state| state.gate.drain(until));
    deferred::abandon();
    known.iter().for_each(|state| state.tell());
    let until = Instant::now() + PATIENCE_TO_TELL;
    known.iter().for_each(|state| state.let_telling_end(until));
    tell_late();
    report::finish();
}

/// Registers [`in_child`], before anything is made that a child must not wait for.
fn watch_forks() {
    static HANDLER: Once = Once::new();
    HANDLER.call_once(|| {
        // SAFETY: the function only stores flags.
        let refused = unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        if refused != 0 {
            log::warn!("cuguard: no handler for forks could be registered");
        }
    });
}

/// In a forked child the driver does not work, and threads that held locks are not there: everything
/// is inert, as at the end.
extern "C" fn in_child() {
    process::set(process::FORKED | process::EXITING);
}

extern "C" fn at_exit() {
    // A forked child has none of these contexts, and its locks may be held for ever. The flag alone
    // does not know of children that came about without the C library's `fork`, nor the number of the
    // first process in a namespace of its own: both are 1 then.
    if is_forked() || OWNER.load(Ordering::Acquire) != std::process::id() {
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
