//! The contexts that are open, for the exit handler and for out-of-memory recovery; and whether the process is a
//! forked child.

use std::sync::{Arc, LazyLock, Mutex, Once, PoisonError, Weak};

use cuguard_registry::{ContextInfo, Late, SnapshotReason};
use cuguard_report::ReportSettings;
use cuguard_sync::{Gate, GateGuard, process};

use super::context_state::ContextState;
use crate::error::{Error, Result};

static OPEN: Mutex<Vec<Weak<ContextState>>> = Mutex::new(Vec::new());

/// Those who are just making a context, which has no gate of its own yet.
static OPENING: LazyLock<Gate> = LazyLock::new(Gate::default);

/// To be kept while a context is made: the end of the process waits for it.
pub(crate) fn opening(operation: &'static str) -> Result<GateGuard<'static>> {
    let ending = Err(Error::ProcessEnding { operation });
    watch_forks();
    // A fork may have come while somebody made the gate.
    if process::is_exiting() {
        return ending;
    }
    let inside = OPENING.count_in();
    if process::is_exiting() {
        ending
    } else {
        Ok(inside)
    }
}

/// Waits a little for contexts that are being opened, at the end of the process.
pub(crate) fn drain_opening(until: std::time::Instant) {
    OPENING.drain(until);
}

/// Adds a context until it is closed.
pub(crate) fn add(state: &Arc<ContextState>) {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|state| state.strong_count() > 0);
    open.push(Arc::downgrade(state));
}

/// Removes a context that is being closed.
pub(crate) fn remove(state: &ContextState) {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|known| !std::ptr::eq(known.as_ptr(), state));
}

/// Contexts that are not yet told of.
pub(crate) fn all() -> Vec<Arc<ContextState>> {
    let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.iter().filter_map(Weak::upgrade).collect()
}

/// The open contexts of a device.
pub(crate) fn on_device(device: u32) -> Vec<Arc<ContextState>> {
    let mut contexts = all();
    contexts.retain(|state| state.device == device);
    contexts
}

/// What is to be told at the end of a context that was told of before. It is a few numbers and how
/// to tell them: nothing keeps the context's own state alive.
pub(crate) struct LateContext {
    pub(crate) info: ContextInfo,
    pub(crate) report: ReportSettings,
    pub(crate) late: Arc<Late>,
}

static LATE: Mutex<Vec<LateContext>> = Mutex::new(Vec::new());

/// Remembers that guards of a context go after it, if anybody wants to know.
pub(crate) fn add_late(state: &ContextState) {
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

/// Takes what was added by [`add_late`].
pub(crate) fn take_late() -> Vec<LateContext> {
    std::mem::take(&mut *LATE.lock().unwrap_or_else(PoisonError::into_inner))
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
