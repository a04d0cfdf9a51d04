//! What a context and its guards share: the driver's context, the registry of what is alive, and
//! the gate that teardown closes. How long it stays open, [`super::open_context`] decides.
//!
//! An operation enters through the [gate](super::gate), which also makes the context current on its
//! thread, and leaves before it returns. [Teardown](super::teardown) closes the gate for good and
//! waits until all operations have left.

use std::collections::HashMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use cuguard_driver::result::{self, CallError};
use cuguard_driver::sys::CUcontext;

use super::budget::Budget;
use super::callbacks::Callbacks;
use super::gate::{Gate, GateGuard};
use super::policy::OomPolicy;
use super::pool_state::PoolState;
use super::report_state::ReportState;
use super::stream_list::List;
use super::unregistered::Unregistered;
use super::{deferred, open_contexts};
use crate::error::{DriverError, Error, Result};
use cuguard_registry::{
    ContextInfo, FailedCall, FailedFree, Key, Kind, Origin, Record, Registry, Site, Snapshot,
    SnapshotReason,
};
use cuguard_report::ReportSettings;
use cuguard_sync::process;

/// Where the driver's context comes from, and so how it is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The device's primary context, which others may hold too.
    Primary,
    /// A context of our own.
    Own,
}

pub(crate) struct ContextState {
    pub(crate) context: CUcontext,
    pub(crate) device: u32,
    pub(crate) device_name: String,
    pub(crate) source: Source,
    /// Contexts are numbered from 1 within the process, for reports.
    pub(crate) number: u64,
    pub(crate) registry: Registry,
    pub(crate) report: ReportSettings,
    /// Whether teardown frees what was forgotten.
    pub(crate) free_leaks: bool,
    /// What its guards may hold.
    pub(crate) budget: Budget,
    /// What is tried when memory runs out.
    pub(crate) oom_policy: OomPolicy,
    pub(crate) callbacks: Callbacks,
    /// The streams and pools that are there, for when memory runs out.
    pub(crate) streams: List,
    pub(crate) pools: List,
    pub(crate) gate: Gate,
    /// The thread that is teardown_thread the context down, 0 for none. Its logger may come back here, and
    /// must not wait for itself.
    pub(crate) teardown_thread: AtomicUsize,
    /// Teardown has seen that the device has nothing left to do in this context.
    pub(crate) device_idle: AtomicBool,
    /// Host memory that the driver does not use any more.
    pub(crate) unregistered: Unregistered,
    /// The pools of memory that was given away, by its address: a pool must not go before its memory.
    pub(crate) escaped_pools: Mutex<HashMap<u64, Arc<PoolState>>>,
    /// How far the telling of what leaked has come.
    pub(crate) report_state: Mutex<ReportState>,
    pub(crate) reported: Condvar,
    /// Where the `Context` was dropped, if that was before the last of its resources.
    dropped: OnceLock<Origin>,
    /// Where it was closed.
    closed: OnceLock<&'static Location<'static>>,
}

/// How long the owner of registered memory who wants it back waits for a teardown that is under way.
/// Teardown waits for the device, which may wait for this very thread, in a host function.
const PATIENCE: Duration = Duration::from_secs(5);

/// A number of the calling thread's own among those that live.
pub(crate) fn this_thread() -> usize {
    thread_local! {
        static HERE: u8 = const { 0 };
    }
    HERE.with(|here| std::ptr::from_ref(here).addr())
}

/// What a custody is made of.
pub(crate) struct Parts {
    pub(crate) context: CUcontext,
    pub(crate) device: u32,
    pub(crate) device_name: String,
    pub(crate) source: Source,
    pub(crate) number: u64,
    pub(crate) registry: Registry,
    pub(crate) report: ReportSettings,
    pub(crate) free_leaks: bool,
    pub(crate) memory_limit: Option<u64>,
    pub(crate) oom_policy: OomPolicy,
}

impl fmt::Debug for ContextState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "context {} on device {}", self.number, self.device)
    }
}

/// The context is current on this thread, and teardown waits, until this goes.
pub(crate) struct Entered<'a> {
    state: &'a ContextState,
    operation: &'static str,
    pushed: bool,
    _inside: GateGuard<'a>,
}

impl ContextState {
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        let state = Arc::new(Self {
            context: parts.context,
            device: parts.device,
            device_name: parts.device_name,
            source: parts.source,
            number: parts.number,
            registry: parts.registry,
            report: parts.report,
            free_leaks: parts.free_leaks,
            budget: Budget::new(parts.memory_limit),
            oom_policy: parts.oom_policy,
            callbacks: Callbacks::default(),
            streams: List::default(),
            pools: List::default(),
            gate: Gate::default(),
            teardown_thread: AtomicUsize::new(0),
            device_idle: AtomicBool::new(false),
            unregistered: Unregistered::default(),
            escaped_pools: Mutex::default(),
            report_state: Mutex::default(),
            reported: Condvar::new(),
            dropped: OnceLock::new(),
            closed: OnceLock::new(),
        });
        open_contexts::add(&state);
        state
    }

    /// Begins an operation: makes the context current on this thread if it is not.
    pub(crate) fn enter(&self, operation: &'static str) -> Result<Entered<'_>> {
        let (entered, current) = self.enter_uncurrent(operation)?;
        self.check(operation, current, None)?;
        Ok(entered)
    }

    /// Begins an operation that may wait for the device, and so may also free what was
    /// [deferred](super::deferred).
    pub(crate) fn enter_to_wait(&self, operation: &'static str) -> Result<Entered<'_>> {
        deferred::run();
        self.enter(operation)
    }

    /// Begins an operation in the usual case, in which the context is there and current already.
    /// This is on the way of every allocation and every free.
    #[inline]
    pub(crate) fn try_enter_current(&self) -> Option<GateGuard<'_>> {
        self.try_enter().filter(|_| self.is_current())
    }

    /// Begins an operation that needs no current context: one that changes what is current, or one
    /// on a stream. Stream-ordered memory is allocated and freed in the context of its stream,
    /// whichever one is current, if any is. (The conformance suite holds drivers to that.) `None`
    /// where the context is closed, or the process is ending.
    #[inline]
    pub(crate) fn try_enter(&self) -> Option<GateGuard<'_>> {
        self.gate.enter().filter(|_| !process::is_exiting())
    }

    /// Whether the context is current on this thread.
    #[inline]
    fn is_current(&self) -> bool {
        result::context::current().is_ok_and(|current| current == Some(self.context))
    }

    /// Begins an operation that goes on where the context cannot be made current, and returns why it cannot.
    pub(crate) fn enter_uncurrent(
        &self,
        operation: &'static str,
    ) -> Result<(Entered<'_>, result::Result)> {
        let Some(inside) = self.gate.enter() else {
            return Err(Error::ContextClosed { operation });
        };
        // The end of the process is looked at from inside: the handler that ends it waits for those
        // who are.
        if process::is_exiting() {
            return Err(Error::ProcessEnding { operation });
        }
        let mut entered = Entered {
            state: self,
            operation,
            pushed: false,
            _inside: inside,
        };
        if self.is_current() {
            return Ok((entered, Ok(())));
        }
        // SAFETY: the context is alive: teardown waits for those who are inside.
        let pushed = unsafe { result::context::push_current(self.context) };
        entered.pushed = pushed.is_ok();
        self.note_if_broken(operation, pushed);
        Ok((entered, pushed))
    }

    /// Turns the error of a driver call into one of this operation.
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
    pub(super) fn note_if_broken(&self, operation: &'static str, result: result::Result) {
        if let Err(CallError { function, code }) = result
            && code.breaks_context()
        {
            let name = code.name().unwrap_or_default();
            self.registry
                .note_broken(FailedCall::new(operation, function, code.0, name));
        }
    }

    /// Records a free that the driver refused: the resource is lost, and shows in the report.
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
        snapshot
    }

    /// Keeps the stack of a drop of the `Context` that left the context open. A drop has no call site
    /// of its own.
    pub(crate) fn note_dropped(&self) {
        let _ = self.dropped.set(Origin::here());
    }

    /// Whether the `Context` was dropped, and something kept the context open.
    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.get().is_some()
    }

    pub(crate) fn note_closed(&self, site: &'static Location<'static>) {
        let _ = self.closed.set(site);
    }

    /// Drops the callbacks of the program, which may do anything in that.
    pub(crate) fn drop_callbacks(&self) {
        drop(catch_unwind(AssertUnwindSafe(|| self.callbacks.clear())));
    }

    pub(crate) fn info(&self, reason: SnapshotReason) -> ContextInfo {
        ContextInfo {
            device: self.device,
            device_name: self.device_name.clone(),
            context: self.number,
            primary: self.is_primary(),
            reason,
            closed_at: self.closed.get().map(|site| Site::from(*site)),
        }
    }

    pub(crate) fn is_primary(&self) -> bool {
        self.source == Source::Primary
    }

    /// Notes a guard that is dropped while teardown is under way, and has not looked yet what is alive:
    /// a host function may drop it that teardown waits for. Teardown frees it, and it is no leak. False
    /// where teardown has looked.
    pub(crate) fn note_drop_in_time(&self, key: Key, bytes: u64) -> bool {
        if process::is_exiting() {
            // In a forked child, locks may be held for ever.
            return true;
        }
        let state = self.lock_report();
        let in_time = matches!(*state, ReportState::Pending);
        if in_time {
            self.registry.set_deferred(key, bytes);
        }
        in_time
    }

    /// Counts a guard that goes after its context; but not at the end of the process, when all that
    /// is left goes. (In a forked child, locks may be held for ever.)
    pub(crate) fn count_late_drop(&self, kind: Kind, bytes: u64) {
        if !process::is_exiting() {
            self.registry.count_late_drop(kind, bytes);
            open_contexts::add_late(self);
        }
    }

    /// Whether the driver does not use host memory of a closed context any more. Waits for a teardown
    /// that is under way, so the caller must not be inside the gate; but not for ever, and then nobody
    /// knows.
    pub(crate) fn is_unregistered(&self, address: u64) -> bool {
        self.wait_for_other_teardown(Instant::now() + PATIENCE)
            && self.unregistered.contains(address)
    }

    /// Waits until a context that is closed is torn down, unless this thread does that.
    pub(crate) fn wait_for_teardown(&self) {
        if self.teardown_thread.load(Ordering::Acquire) != this_thread() {
            self.gate.wait_for_teardown();
        }
    }

    /// The pools of memory that was given away.
    pub(crate) fn escaped_pools(&self) -> MutexGuard<'_, HashMap<u64, Arc<PoolState>>> {
        self.escaped_pools
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the context was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.gate.is_closed()
    }
}

impl Entered<'_> {
    /// What the program asked for.
    pub(crate) fn operation(&self) -> &'static str {
        self.operation
    }

    /// Turns the error of a driver call into one of this operation.
    #[inline]
    pub(crate) fn check<T>(&self, result: result::Result<T>) -> Result<T> {
        self.state.check(self.operation, result, None)
    }

    /// Keeps an error that breaks the context, where another error is returned.
    pub(super) fn note_if_broken(&self, result: result::Result) {
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
            // What `enter` pushed: nothing in between changes the stack.
            let _ = result::context::pop_current();
        }
    }
}

/// Logs an error on a path that must not panic, whatever the program's logger does. Not in a forked
/// child: a lock of the logger may be in the hands of a thread that is not there.
pub(crate) fn log_error(what: &dyn fmt::Display) {
    if process::is_forked() {
        return;
    }
    let logged = catch_unwind(AssertUnwindSafe(|| log::error!("cuguard: {what}")));
    drop(logged);
}

/// The address of a thing for the registry.
pub(crate) fn key(kind: Kind, address: u64) -> Key {
    Key::new(kind, address)
}
