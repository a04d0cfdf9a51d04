//! What a context and its guards share: the driver's context, the registry of what is alive, and
//! the gate that teardown closes.
//!
//! ```text
//!     Context ── owns ──► the driver's context        teardown happens when this goes
//!        │
//!        ▼
//!     Custody ◄── Claim ── every guard                a forgotten guard keeps these few bytes
//!                                                     alive, never the context
//! ```
//!
//! An operation enters through the gate, which also makes the context current on its thread, and
//! leaves before it returns. Teardown closes the gate for good once all operations have left.

use std::collections::HashSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use cuguard_driver::api;
use cuguard_driver::sys::{CUcontext, CUresult, CUstream};

use crate::error::{DriverError, Error, Result};
use crate::exit;
use crate::raw;
use crate::registry::{About, Key, Kind, Occasion, Registry, Snapshot};
use crate::report::{self, ReportSettings};
use crate::scope_end;

/// Where the driver's context comes from, and so how it is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The device's primary context, which others may hold too.
    Primary,
    /// A context of our own.
    Own,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Open,
    Closed,
}

pub(crate) struct Custody {
    pub(crate) context: CUcontext,
    pub(crate) device: u32,
    pub(crate) device_name: String,
    pub(crate) source: Source,
    /// Contexts are numbered from 1 within the process, for reports.
    pub(crate) number: u64,
    pub(crate) registry: Registry,
    pub(crate) report: ReportSettings,
    /// Whether teardown frees what was forgotten.
    pub(crate) reclaim: bool,
    gate: RwLock<Gate>,
    /// The thread that is tearing the context down, 0 for none. Its logger may come back here, and
    /// must not wait for itself.
    tearing: AtomicUsize,
    /// Host memory that the driver let go of at teardown. What is not in here may still be
    /// registered, where others keep the driver's context alive.
    let_go: Mutex<HashSet<u64>>,
    /// The driver's context is gone, and with it every registration.
    destroyed: AtomicBool,
}

/// A number of the calling thread's own among those that live.
fn this_thread() -> usize {
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
    pub(crate) reclaim: bool,
}

impl fmt::Debug for Custody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "context {} on device {}", self.number, self.device)
    }
}

/// The context is current on this thread, and teardown waits, until this goes.
pub(crate) struct Entered<'a> {
    custody: &'a Custody,
    operation: &'static str,
    pushed: bool,
    _gate: RwLockReadGuard<'a, Gate>,
}

impl Custody {
    pub(crate) fn new(parts: Parts) -> Arc<Self> {
        let custody = Arc::new(Self {
            context: parts.context,
            device: parts.device,
            device_name: parts.device_name,
            source: parts.source,
            number: parts.number,
            registry: parts.registry,
            report: parts.report,
            reclaim: parts.reclaim,
            gate: RwLock::new(Gate::Open),
            tearing: AtomicUsize::new(0),
            let_go: Mutex::default(),
            destroyed: AtomicBool::new(false),
        });
        exit::remember(&custody);
        custody
    }

    /// Begins an operation: makes the context current on this thread if it is not.
    pub(crate) fn enter(&self, operation: &'static str) -> Result<Entered<'_>> {
        if exit::is_exiting() || self.tearing.load(Ordering::Acquire) == this_thread() {
            return Err(Error::ContextClosed { operation });
        }
        let gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        if *gate == Gate::Closed {
            return Err(Error::ContextClosed { operation });
        }
        let mut current = CUcontext::NULL;
        // SAFETY: the variable can be written to. A failure leaves it null, and the push tells.
        let _ = unsafe { api::cuCtxGetCurrent(&mut current) };
        let pushed = current != self.context;
        if pushed {
            // SAFETY: the context is alive: the gate is open, and is held.
            let code = unsafe { api::cuCtxPushCurrent_v2(self.context) };
            self.check(operation, "cuCtxPushCurrent", code, None)?;
        }
        Ok(Entered {
            custody: self,
            operation,
            pushed,
            _gate: gate,
        })
    }

    /// Turns a code of the driver into a result.
    pub(crate) fn check(
        &self,
        operation: &'static str,
        function: &'static str,
        code: CUresult,
        bytes: Option<u64>,
    ) -> Result<()> {
        match code {
            CUresult::SUCCESS => Ok(()),
            code => Err(Error::Driver(DriverError {
                operation,
                function,
                code,
                bytes,
                device: Some(self.device),
            })),
        }
    }

    pub(crate) fn snapshot(&self, occasion: Occasion) -> Snapshot {
        self.registry.snapshot(About {
            device: self.device,
            device_name: self.device_name.clone(),
            context: self.number,
            primary: self.source == Source::Primary,
            occasion,
        })
    }

    /// Ends the context: waits for the device, reports what is still there, frees it, gives the
    /// context back. Once; later calls find it done. The first thing that went wrong is answered,
    /// the rest is done all the same.
    pub(crate) fn tear_down(&self, operation: &'static str, occasion: Occasion) -> Result<()> {
        // Operations under way end first: they hold the gate.
        let mut gate = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        if *gate == Gate::Closed {
            return Ok(());
        }
        if exit::is_exiting() {
            return Err(Error::ContextClosed { operation });
        }
        *gate = Gate::Closed;
        self.tearing.store(this_thread(), Ordering::Release);
        exit::forget(self);
        let mut first = Ok(());
        let mut keep = |result: Result<()>| {
            if first.is_ok() {
                first = result;
            }
        };
        // All that follows needs the context current, so a refusal is not taken at once.
        let mut pushed = false;
        for _ in 0..scope_end::REFUSALS {
            // SAFETY: the context is alive until it is given back below.
            let code = unsafe { api::cuCtxPushCurrent_v2(self.context) };
            keep(self.check(operation, "cuCtxPushCurrent", code, None));
            pushed = code.is_success();
            if pushed {
                break;
            }
            std::thread::sleep(scope_end::PAUSE);
        }
        if pushed {
            // Scopes count on this wait, so one that is refused is tried again.
            for _ in 0..scope_end::REFUSALS {
                // SAFETY: the context is current.
                let code = unsafe { api::cuCtxSynchronize() };
                keep(self.check(operation, "cuCtxSynchronize", code, None));
                if code.is_success() {
                    break;
                }
                std::thread::sleep(scope_end::PAUSE);
            }
        }
        // The report may run the program's logger. Whatever that does, the rest is done, and a drop
        // does not panic.
        let reported = catch_unwind(AssertUnwindSafe(|| {
            report::emit(&self.snapshot(occasion), &self.report);
        }));
        drop(reported);
        if pushed {
            if self.reclaim {
                keep(self.reclaim(operation));
            }
            // SAFETY: takes away what was pushed above.
            let _ = unsafe { api::cuCtxPopCurrent_v2(std::ptr::null_mut()) };
        }
        keep(self.give_back(operation));
        self.tearing.store(0, Ordering::Release);
        first
    }

    /// Whether a context that is closed has let go of host memory, so that it can be freed.
    pub(crate) fn has_let_go(&self, address: u64) -> bool {
        let let_go = self.let_go.lock().unwrap_or_else(PoisonError::into_inner);
        self.destroyed.load(Ordering::Acquire) || let_go.contains(&address)
    }

    /// Whether the context was closed.
    pub(crate) fn is_closed(&self) -> bool {
        self.tearing.load(Ordering::Acquire) == this_thread()
            || *self.gate.read().unwrap_or_else(PoisonError::into_inner) == Gate::Closed
    }

    /// Frees what forgotten guards left, on a device that has nothing left to do.
    fn reclaim(&self, operation: &'static str) -> Result<()> {
        let mut first = Ok(());
        let mut stream_ordered = false;
        for (key, record) in self.registry.drain() {
            stream_ordered |= key.kind == Kind::StreamOrdered;
            // SAFETY: the record says that a guard owns this, and the closed gate keeps that guard
            // from ever freeing it. The device is idle, so the default stream is as good as any.
            let (function, code) = unsafe { raw::free(key, CUstream::NULL) };
            if code.is_success() && matches!(key.kind, Kind::Pinned | Kind::Registered) {
                let mut let_go = self.let_go.lock().unwrap_or_else(PoisonError::into_inner);
                let_go.insert(key.address);
            }
            if let Err(error) = self.check(operation, function, code, Some(record.bytes())) {
                log_error(&format_args!("could not free what was forgotten: {error}"));
                if first.is_ok() {
                    first = Err(error);
                }
            }
        }
        if stream_ordered {
            // So that the pool sees the frees happen. SAFETY: the context is current.
            let _ = unsafe { api::cuStreamSynchronize(CUstream::NULL) };
        }
        first
    }

    fn give_back(&self, operation: &'static str) -> Result<()> {
        match self.source {
            Source::Primary => {
                // SAFETY: gives back what the builder retained, once.
                let code = unsafe { api::cuDevicePrimaryCtxRelease_v2(self.device as i32) };
                self.check(operation, "cuDevicePrimaryCtxRelease", code, None)
            }
            Source::Own => {
                // SAFETY: the builder created it, and the closed gate keeps all others out.
                let code = unsafe { api::cuCtxDestroy_v2(self.context) };
                self.destroyed.store(code.is_success(), Ordering::Release);
                self.check(operation, "cuCtxDestroy", code, None)
            }
        }
    }

    /// Reports a context that is still open when the process ends. Calls no driver.
    pub(crate) fn report_never_closed(&self) {
        report::emit(&self.snapshot(Occasion::NeverClosed), &self.report);
    }
}

impl Entered<'_> {
    /// Turns a code of the driver into a result of this operation.
    pub(crate) fn check(&self, function: &'static str, code: CUresult) -> Result<()> {
        self.custody.check(self.operation, function, code, None)
    }

    /// The same for a call about so many bytes.
    pub(crate) fn check_bytes(
        &self,
        function: &'static str,
        code: CUresult,
        bytes: usize,
    ) -> Result<()> {
        let bytes = Some(bytes as u64);
        self.custody.check(self.operation, function, code, bytes)
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if self.pushed && !exit::is_exiting() {
            // SAFETY: takes away what `enter` pushed; nothing in between changes the stack.
            let _ = unsafe { api::cuCtxPopCurrent_v2(std::ptr::null_mut()) };
        }
    }
}

/// Logs an error on a path that must not panic, whatever the program's logger does.
pub(crate) fn log_error(what: &dyn fmt::Display) {
    let logged = catch_unwind(AssertUnwindSafe(|| log::error!("cuguard: {what}")));
    drop(logged);
}

/// The address of a thing for the registry.
pub(crate) fn key(kind: Kind, address: u64) -> Key {
    Key { kind, address }
}
