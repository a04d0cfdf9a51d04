//! The state that a context and its guards share: the driver's context, the registry, and the gate that teardown
//! closes. [`crate::core::release::open_context`] decides how long it stays open.
//!
//! An operation enters the [gate](cuguard_sync::Gate), makes the context current on its thread, and leaves before it returns.
//! [Teardown](crate::core::teardown::tear_down) closes the gate for good and waits until all operations have left.

use std::any::Any;
use std::fmt;
use std::io::{self, Write as _};
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

use cuguard_driver::result::{self, CallError};
use cuguard_driver::sys::CUcontext;

use crate::core::shared::budget::Budget;
use crate::core::shared::callbacks::Callbacks;
use crate::core::shared::captures::Captures;
use crate::core::shared::handle_list::HandleList;
use crate::core::shared::policy::OomPolicy;
use crate::core::shared::unregistered::Unregistered;
use crate::error::{DriverError, Error, Result};
use cuguard_registry::{
    ContextInfo, FailedCall, FailedFree, Key, Origin, Record, Registry, Site, Snapshot,
    SnapshotReason,
};
use cuguard_report::ReportSettings;
use cuguard_sync::{Gate, GateGuard, process};

/// Where the driver's context comes from, and so how it is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The device's primary context, which other code may retain too.
    Primary,
    /// A context that the builder created, or of which it took ownership.
    Own,
    /// A context of other code, which is not released.
    Borrowed,
}

/// What the builder provides.
pub(crate) struct ContextConfig {
    pub(crate) context: CUcontext,
    pub(crate) device: u32,
    pub(crate) device_name: String,
    pub(crate) source: Source,
    pub(crate) is_primary: bool,
    /// Whether a reference to the device's primary context is to be released, besides what `source` says.
    pub(crate) keeps_primary: bool,
    /// Contexts are numbered from 1 within the process, for reports.
    pub(crate) number: u64,
    pub(crate) registry: Registry,
    pub(crate) report: ReportSettings,
    /// The [pools of cuguard](crate::core::pools::list) in this context: a [`PoolList`](super::PoolList), which refers to this state.
    pub(crate) pools_of_cuguard: Box<dyn Any + Send + Sync>,
    /// Whether all buffers of the context come from a pool of cuguard.
    pub(crate) has_pool: bool,
    /// Whether teardown frees what leaked.
    pub(crate) free_leaks: bool,
    pub(crate) budget: Budget,
    pub(crate) oom_policy: OomPolicy,
}

/// The report of a context.
///
/// ```text
///     Pending ──► Taken ──► Reporting ──► Reported
///        └────────────────────┘  a context that was never closed, at exit
/// ```
#[derive(Debug, Default)]
pub(crate) enum ReportState {
    /// No snapshot is taken yet.
    #[default]
    Pending,
    /// The snapshot of teardown.
    Taken(Box<Snapshot>),
    /// The thread with this number reports.
    Reporting(usize),
    Reported,
}

pub(crate) struct ContextState {
    config: ContextConfig,
    pub(crate) callbacks: Callbacks,
    /// The captures in progress.
    pub(crate) captures: Captures,
    /// The live streams and pools, for out-of-memory recovery.
    pub(crate) streams: HandleList,
    pub(crate) pools: HandleList,
    pub(crate) gate: Gate,
    /// The thread that tears the context down, or 0. The program's logger may call back on that thread, and must not
    /// wait for itself.
    pub(crate) teardown_thread: AtomicUsize,
    /// Teardown has seen that the device runs no work of this context.
    pub(crate) device_idle: AtomicBool,
    /// It has seen that of streams that exist, not of destroyed ones.
    pub(in crate::core) only_streams_idle: AtomicBool,
    pub(crate) unregistered: Unregistered,
    pub(crate) report_state: Mutex<ReportState>,
    pub(crate) reported: Condvar,
    /// Where the `Context` was dropped, if that was before the last of its resources.
    dropped: OnceLock<Origin>,
    /// Where it was closed.
    closed: OnceLock<&'static Location<'static>>,
}

impl Deref for ContextState {
    type Target = ContextConfig;

    #[inline]
    fn deref(&self) -> &ContextConfig {
        &self.config
    }
}

/// How long `RegisteredVec::into_vec` waits for a teardown in progress. Teardown waits for the device, which may wait
/// for this very thread, in a host function.
const PATIENCE: Duration = Duration::from_secs(5);

/// A number that is unique among live threads.
pub(crate) fn this_thread() -> usize {
    thread_local! {
        static HERE: u8 = const { 0 };
    }
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

impl fmt::Debug for ContextState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "context {} on device {}", self.number, self.device)
    }
}

/// An operation inside the gate, with the context current on this thread, until dropped.
pub(crate) struct Entered<'a> {
    state: &'a ContextState,
    operation: &'static str,
    pushed: bool,
    _inside: GateGuard<'a>,
}

impl ContextState {
    pub(in crate::core) fn new(config: ContextConfig) -> Arc<Self> {
        Arc::new(Self {
            config,
            callbacks: Callbacks::default(),
            captures: Captures::default(),
            streams: HandleList::default(),
            pools: HandleList::default(),
            gate: Gate::default(),
            teardown_thread: AtomicUsize::new(0),
            device_idle: AtomicBool::new(false),
            only_streams_idle: AtomicBool::new(false),
            unregistered: Unregistered::default(),
            report_state: Mutex::default(),
            reported: Condvar::new(),
            dropped: OnceLock::new(),
            closed: OnceLock::new(),
        })
    }

    /// Its number in recordings.
    pub(crate) fn recorded_number(&self) -> u32 {
        u32::try_from(self.number).unwrap_or(0)
    }

    /// Begins an operation: enters the gate and makes the context current on this thread.
    #[inline]
    pub(crate) fn enter(&self, operation: &'static str) -> Result<Entered<'_>> {
        let mut entered = self.enter_gate(operation)?;
        if !self.is_current() {
            let pushed = self.push_current(operation);
            entered.pushed = pushed.is_ok();
            self.check(operation, pushed, None)?;
        }
        Ok(entered)
    }

    /// Begins an operation in the common case: the context is open and already current. On the hot path of every free.
    #[inline]
    pub(crate) fn try_enter_current(&self) -> Option<GateGuard<'_>> {
        self.try_enter().filter(|_| self.is_current())
    }

    /// Begins an operation that needs no current context: one that changes what is current, or a stream-ordered
    /// allocation or free, which happens in the context of its stream whatever is current. (The conformance suite
    /// tests that.) `None` if the context is closed or the process is exiting.
    #[inline]
    pub(crate) fn try_enter(&self) -> Option<GateGuard<'_>> {
        self.gate.enter().filter(|_| !process::is_exiting())
    }

    /// Whether the context is current on this thread.
    #[inline]
    fn is_current(&self) -> bool {
        result::context::current().is_ok_and(|current| current == Some(self.context))
    }

    /// Begins a wait, which goes on where the context cannot be made current, and returns why it cannot. Also where the context
    /// is about to be closed, if the thread is inside another operation, as in `Scope::call_library`: teardown waits for that,
    /// and so must not be waited for.
    pub(crate) fn enter_any_context(
        &self,
        operation: &'static str,
    ) -> Result<(Entered<'_>, result::Result)> {
        let mut entered = match self.enter_gate(operation) {
            Err(Error::ContextClosed { .. }) if self.gate.is_inside() => Entered {
                state: self,
                operation,
                pushed: false,
                _inside: self.gate.enter_closed(),
            },
            entered => entered?,
        };
        if self.is_current() {
            return Ok((entered, Ok(())));
        }
        let pushed = self.push_current(operation);
        entered.pushed = pushed.is_ok();
        Ok((entered, pushed))
    }

    /// Enters the gate, and leaves the current context as it is.
    #[inline]
    fn enter_gate(&self, operation: &'static str) -> Result<Entered<'_>> {
        let Some(inside) = self.gate.enter() else {
            return Err(Error::ContextClosed { operation });
        };
        // Checked inside the gate: the exit handler sets the flag and then waits for operations inside.
        if process::is_exiting() {
            return Err(Error::ProcessEnding { operation });
        }
        Ok(Entered {
            state: self,
            operation,
            pushed: false,
            _inside: inside,
        })
    }

    /// Makes the context current. The caller is inside the gate, or is teardown.
    #[inline(never)]
    pub(in crate::core) fn push_current(&self, operation: &'static str) -> result::Result {
        // SAFETY: the context is alive: teardown waits for operations inside the gate, and only then releases it.
        let pushed = unsafe { result::context::push_current(self.context) };
        self.note_if_broken(operation, pushed);
        pushed
    }

    /// Turns the error of a driver call into an error of this operation.
    #[inline]
    pub(crate) fn check<T>(
        &self,
        operation: &'static str,
        result: result::Result<T>,
        bytes: Option<u64>,
    ) -> Result<T> {
        result.map_err(|error| self.error(operation, error, bytes))
    }

    /// The same for an error. One that breaks the context is kept for the report.
    #[cold]
    pub(crate) fn error(
        &self,
        operation: &'static str,
        error @ CallError { function, code }: CallError,
        bytes: Option<u64>,
    ) -> Error {
        self.note_if_broken(operation, Err(error));
        Error::Driver(DriverError {
            operation,
            function,
            code,
            bytes,
            device: Some(self.device),
        })
    }

    /// Keeps an error that breaks the context for the report, also where the operation goes on without the call.
    pub(crate) fn note_if_broken(&self, operation: &'static str, result: result::Result) {
        if let Err(error) = result
            && error.code.breaks_context()
        {
            self.registry.note_broken(failed_call(operation, error));
        }
    }

    /// Records a failed free: the resource is lost, and shows in the report (invariant 3).
    #[cold]
    #[track_caller]
    pub(crate) fn record_failed_free(
        &self,
        key: Key,
        bytes: u64,
        record: Option<Record>,
        CallError { function, code }: CallError,
    ) {
        let name = code.name().unwrap_or_default();
        self.registry
            .file_failed_free(FailedFree::new(key, bytes, record, function, code.0, name));
    }

    pub(crate) fn snapshot(&self, reason: SnapshotReason) -> Snapshot {
        let mut snapshot = self.registry.snapshot(self.info(reason));
        snapshot.dropped = self.dropped.get().copied();
        snapshot.pools = self.pools_of_cuguard().usage();
        snapshot
    }

    /// Keeps the stack trace of a drop of the `Context` that left the context open. (A drop has no call site.)
    pub(crate) fn note_dropped(&self) {
        let _ = self.dropped.set(Origin::here());
    }

    /// Whether the `Context` was dropped while a resource kept the context open.
    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.get().is_some()
    }

    pub(crate) fn note_closed(&self, site: &'static Location<'static>) {
        let _ = self.closed.set(site);
    }

    /// Drops the program's callbacks, whose drops may panic.
    pub(crate) fn drop_callbacks(&self) {
        drop(catch_unwind(AssertUnwindSafe(|| self.callbacks.clear())));
    }

    pub(crate) fn info(&self, reason: SnapshotReason) -> ContextInfo {
        ContextInfo {
            device: self.device,
            device_name: self.device_name.clone(),
            context: self.number,
            primary: self.is_primary,
            reason,
            closed_at: self.closed.get().map(|site| Site::from(*site)),
        }
    }

    /// Marks a guard that is dropped after the gate was closed and before teardown takes its snapshot, such as by a
    /// host function that teardown waits for: teardown frees it, and it is no leak. False after the snapshot.
    pub(crate) fn mark_dropped_during_teardown(&self, key: Key, bytes: u64) -> bool {
        if process::is_exiting() {
            // In a forked child a thread that does not exist may hold the lock.
            return true;
        }
        let report = self.lock_report();
        let in_time = matches!(*report, ReportState::Pending);
        if in_time {
            self.registry.set_deferred(key, bytes);
        }
        in_time
    }

    /// Whether the driver no longer uses this host memory of a closed context. Waits for a teardown in progress, so the
    /// caller must be outside the gate; false if that takes longer than [`PATIENCE`].
    pub(crate) fn is_unregistered(&self, address: u64) -> bool {
        self.wait_for_other_teardown(Instant::now() + PATIENCE)
            && self.unregistered.contains(address)
    }

    /// Waits until a closed context is torn down, unless this thread tears it down.
    pub(crate) fn wait_for_teardown(&self) {
        if self.teardown_thread.load(Ordering::Acquire) != this_thread() {
            self.gate.wait_for_teardown();
        }
    }

    /// Whether a thread tears the context down.
    pub(in crate::core) fn is_torn_down_by(&self, thread: usize) -> bool {
        self.teardown_thread.load(Ordering::Acquire) == thread
    }

    /// Whether the context is closed, and its teardown done.
    pub(crate) fn is_torn_down(&self) -> bool {
        self.is_closed() && self.gate.wait_for_teardown_until(Instant::now())
    }

    /// Whether teardown has closed the gate.
    pub(crate) fn is_closed(&self) -> bool {
        self.gate.is_closed()
    }
}

impl Entered<'_> {
    pub(in crate::core) fn state(&self) -> &ContextState {
        self.state
    }

    /// The public function that the program called.
    pub(crate) fn operation(&self) -> &'static str {
        self.operation
    }

    /// Turns the error of a driver call into an error of this operation.
    #[inline]
    pub(crate) fn check<T>(&self, result: result::Result<T>) -> Result<T> {
        self.state.check(self.operation, result, None)
    }

    /// Keeps an error that breaks the context, where another error is returned.
    pub(in crate::core) fn note_if_broken(&self, result: result::Result) {
        self.state.note_if_broken(self.operation, result);
    }

    /// The same for a call about `bytes` bytes.
    #[inline]
    pub(crate) fn check_bytes<T>(&self, result: result::Result<T>, bytes: usize) -> Result<T> {
        self.state.check(self.operation, result, Some(bytes as u64))
    }
}

impl Drop for Entered<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.pushed && !process::is_exiting() {
            // Pops what `enter` pushed: nothing in between changes the stack.
            let _ = result::context::pop_current();
        }
    }
}

/// A failed driver call as the registry keeps it.
pub(in crate::core) fn failed_call(operation: &'static str, error: CallError) -> FailedCall {
    FailedCall {
        operation,
        function: error.function,
        code: error.code.0,
        code_name: error.code.name().unwrap_or_default(),
    }
}

/// Logs an error on a path that must not panic, whatever the program's logger does. Not in a forked child, where a
/// thread that does not exist may hold a lock of the logger.
pub(crate) fn log_error(what: &dyn fmt::Display) {
    if process::is_forked() {
        return;
    }
    let logged = catch_unwind(AssertUnwindSafe(|| log::error!("cuguard: {what}")));
    drop(logged);
}

/// As [`log_error`], and on standard error without a logger: for an error that is neither returned nor in a report.
pub(crate) fn log_or_print_error(what: &dyn fmt::Display) {
    if process::is_forked() {
        return;
    }
    let logged = catch_unwind(AssertUnwindSafe(|| {
        let is_enabled = log::log_enabled!(log::Level::Error);
        if is_enabled {
            log::error!("cuguard: {what}");
        }
        is_enabled
    }));
    if !logged.unwrap_or(false) {
        // Not `eprintln!`, which panics where standard error is closed.
        let _ = writeln!(io::stderr(), "cuguard: {what}");
    }
}
