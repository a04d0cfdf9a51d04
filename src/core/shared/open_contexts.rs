//! The open contexts of the process, for the exit handler and for out-of-memory recovery; and the handler that marks
//! a forked child.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, Once, Weak};
use std::time::Instant;

use cuguard_driver::sys::CUcontext;
use cuguard_registry::{
    ContextInfo, Late, ResourceKind, SnapshotReason, free_labels, record_context_created,
};
use cuguard_report::ReportSettings;
use cuguard_sync::{Gate, GateGuard, process};

use crate::core::shared::context_state::{ContextConfig, ContextState};
use crate::core::shared::ended::{self, ByKind};
use crate::core::shared::lock::lock;
use crate::error::{Error, Result};

static OPEN: Mutex<Vec<Weak<ContextState>>> = Mutex::new(Vec::new());

/// For operations that enter no context's gate: to create a context, to run deferred frees.
static PROCESS_GATE: LazyLock<Gate> = LazyLock::new(Gate::default);

/// Begins an operation outside of any context. The exit handler waits for it.
pub(crate) fn enter_process(operation: &'static str) -> Result<GateGuard<'static>> {
    let ending = Err(Error::ProcessEnding { operation });
    watch_forks();
    // First, because a fork may have happened while another thread initialized the gate.
    if process::is_exiting() {
        return ending;
    }
    let inside = PROCESS_GATE.enter_closed();
    if process::is_exiting() {
        return ending;
    }
    Ok(inside)
}

/// Waits for operations outside of any context, at most until `until`.
pub(crate) fn drain_process(until: Instant) {
    PROCESS_GATE.drain(until);
}

/// Creates the state of a context, which is on the list until it is reported.
pub(crate) fn open(config: ContextConfig) -> Arc<ContextState> {
    let state = ContextState::new(config);
    add(&state);
    record_context_created(state.recorded_number(), state.device);
    state
}

fn add(state: &Arc<ContextState>) {
    free_labels(|visit| {
        for state in all() {
            visit(&state.registry);
        }
    });
    let mut open = lock(&OPEN);
    open.retain(|state| state.strong_count() > 0);
    open.push(Arc::downgrade(state));
}

pub(crate) fn remove(state: &ContextState) {
    // Dropped after the lock: one of them may be the last reference.
    let others: Vec<Arc<ContextState>>;
    let mut open = lock(&OPEN);
    let before = open.len();
    open.retain(|known| !std::ptr::eq(known.as_ptr(), state));
    others = open.iter().filter_map(Weak::upgrade).collect();
    // While the list is locked: no reader sees the context in both, or in neither.
    if open.len() < before {
        ended::add(state, others.iter().map(|other| &**other));
    }
}

/// The contexts that are not reported yet.
pub(crate) fn all() -> Vec<Arc<ContextState>> {
    lock(&OPEN).iter().filter_map(Weak::upgrade).collect()
}

/// The contexts that are not reported yet, and how many were allocated in the others, by device.
pub(crate) fn all_and_ended() -> (Vec<Arc<ContextState>>, BTreeMap<u32, ByKind>) {
    let open = lock(&OPEN);
    (
        open.iter().filter_map(Weak::upgrade).collect(),
        ended::allocated(),
    )
}

/// The open contexts of a device.
pub(crate) fn on_device(device: u32) -> Vec<Arc<ContextState>> {
    let mut contexts = all();
    contexts.retain(|state| state.device == device);
    contexts
}

/// Whether a guard of this context captures, which may be another one than the caller's: the primary context of a device can
/// have several. While it does, the context cannot be waited for.
pub(in crate::core) fn captures_in(context: CUcontext, device: u32) -> bool {
    let guards = on_device(device);
    let mut guards = guards.iter().filter(|state| state.context == context);
    guards.any(|state| !state.captures.is_empty())
}

/// The guards of a reported context that were dropped after it, for the exit report. Does not keep the context's
/// state alive.
pub(crate) struct LateContext {
    pub(crate) info: ContextInfo,
    pub(crate) report: ReportSettings,
    pub(crate) late: Arc<Late>,
}

static LATE: Mutex<Vec<LateContext>> = Mutex::new(Vec::new());

/// Adds a context whose guards are dropped after it, once, if reports are on.
fn add_late(state: &ContextState) {
    let late = state.registry.late();
    if !state.report.is_on() || !late.is_new() {
        return;
    }
    lock(&LATE).push(LateContext {
        info: state.info(SnapshotReason::LateDrops),
        report: state.report.clone(),
        late: late.clone(),
    });
}

impl ContextState {
    /// Counts a guard that is dropped after its context; not at exit, when everything left is dropped.
    pub(crate) fn count_late_drop(&self, kind: ResourceKind, bytes: u64) {
        if !process::is_exiting() {
            self.registry.count_late_drop(kind, bytes);
            add_late(self);
        }
    }
}

/// Takes what was added by [`add_late`].
pub(crate) fn take_late() -> Vec<LateContext> {
    std::mem::take(&mut *lock(&LATE))
}

/// Registers [`in_child`], before anything exists that a child must not wait for.
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

/// In a forked child the driver does not work, and threads that held locks do not exist: all guards are inert, as at
/// exit.
extern "C" fn in_child() {
    // SAFETY: runs in a forked child only.
    unsafe { process::mark_forked() };
}
