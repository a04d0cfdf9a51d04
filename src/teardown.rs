//! The end of a context: wait for the device, take down what is still there, free it, give the
//! context back, and report.
//!
//! The facts for the report are taken before anything is freed. They are told after, as the driver
//! may refuse a free, and that belongs into the report too (law 3). Should the process end in the
//! meantime, the exit handler tells them instead.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Instant;

use cuguard_driver::api;
use cuguard_driver::sys::{CUresult, CUstream};

use crate::custody::{Custody, Source, this_thread};
use crate::error::{Error, Result};
use crate::exit;
use crate::raw;
use crate::registry::{FailedFree, Kind, Occasion, Snapshot};
use crate::report;
use crate::scope_end::Refusals;

/// How far the telling of what leaked has come.
#[derive(Debug, Default)]
pub(crate) enum Story {
    #[default]
    Unknown,
    /// What there was when teardown looked.
    Known(Box<Snapshot>),
    Told,
}

/// Says that teardown is done, however it ends.
struct Finish<'a>(&'a Custody);

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        self.0.tearing.store(0, Ordering::Release);
        self.0.gate.finish();
        exit::forget(self.0);
    }
}

impl Custody {
    /// Ends the context. Once; later calls find it done. The first thing that went wrong is
    /// answered, the rest is done all the same.
    pub(crate) fn tear_down(&self, operation: &'static str, occasion: Occasion) -> Result<()> {
        if self.gate.is_closed() {
            return Ok(());
        }
        if exit::is_exiting() {
            return Err(Error::ContextClosed { operation });
        }
        self.tearing.store(this_thread(), Ordering::Release);
        // Operations under way end first.
        if !self.gate.close() {
            return Ok(());
        }
        let _finish = Finish(self);
        let mut first = Ok(());
        let mut keep = |result: Result<()>| {
            if first.is_ok() {
                first = result;
            }
        };
        let pushed = self.push(operation);
        keep(pushed.clone());
        if pushed.is_ok() {
            keep(self.wait_for_device(operation));
        }
        self.note(occasion);
        if self.reclaim {
            keep(self.reclaim(operation, &pushed));
        }
        if pushed.is_ok() {
            // SAFETY: takes away what was pushed above.
            let _ = unsafe { api::cuCtxPopCurrent_v2(std::ptr::null_mut()) };
        }
        keep(self.give_back(operation));
        self.tell();
        first
    }

    /// Makes the context current. All that follows needs it, so a refusal is not taken at once.
    fn push(&self, operation: &'static str) -> Result<()> {
        let mut refusals = Refusals::default();
        loop {
            // SAFETY: the context is alive until it is given back.
            let code = unsafe { api::cuCtxPushCurrent_v2(self.context) };
            let pushed = self.check(operation, "cuCtxPushCurrent", code, None);
            if pushed.is_ok() || refusals.are_final(&[code]) {
                return pushed;
            }
        }
    }

    /// Waits for the device. Scopes count on it, so a wait that is refused is tried again a few
    /// times. Where other calls are refused in the same way, the context is broken, and a broken
    /// one does nothing any more.
    fn wait_for_device(&self, operation: &'static str) -> Result<()> {
        let mut answer = Ok(());
        for _ in 0..Refusals::ENOUGH {
            // SAFETY: the context is current.
            let code = unsafe { api::cuCtxSynchronize() };
            answer = answer.and(self.check(operation, "cuCtxSynchronize", code, None));
            // SAFETY: asks the default stream of the current context.
            let broken = || code == unsafe { api::cuStreamQuery(CUstream::NULL) };
            let settled = code.is_success() || broken();
            self.settled.store(settled, Ordering::Release);
            if code.is_success() {
                break;
            }
            std::thread::sleep(Refusals::PAUSE);
        }
        answer
    }

    /// Frees what forgotten guards left, on a device that has nothing left to do.
    fn reclaim(&self, operation: &'static str, pushed: &Result<()>) -> Result<()> {
        let mut first = Ok(());
        let mut stream_ordered = false;
        for (key, record) in self.registry.drain() {
            stream_ordered |= key.kind == Kind::StreamOrdered;
            let (function, code) = match pushed {
                // SAFETY: the record says that a guard owns this, and the closed gate keeps that
                // guard from ever freeing it. The context is current. The device is idle, so the
                // default stream is as good as any.
                Ok(()) => (raw::function(key.kind), unsafe {
                    raw::free(key, CUstream::NULL)
                }),
                Err(error) => (
                    "cuCtxPushCurrent",
                    error.code().unwrap_or(CUresult::UNKNOWN),
                ),
            };
            if code.is_success() {
                if matches!(key.kind, Kind::Pinned | Kind::Registered) {
                    let mut let_go = self.let_go.lock().unwrap_or_else(PoisonError::into_inner);
                    let_go.insert(key.address);
                }
                continue;
            }
            let bytes = record.bytes();
            first = first.and(self.check(operation, function, code, Some(bytes)));
            self.registry.file_failed_free(FailedFree::new(
                key,
                bytes,
                Some(record),
                function,
                code.0,
                code.to_string(),
            ));
        }
        if stream_ordered && pushed.is_ok() {
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
                if code.is_success() {
                    self.destroyed.store(true, Ordering::Release);
                    // Its work went with it.
                    self.settled.store(true, Ordering::Release);
                }
                self.check(operation, "cuCtxDestroy", code, None)
            }
        }
    }

    /// Takes down what there is.
    fn note(&self, occasion: Occasion) {
        let snapshot = Box::new(self.snapshot(occasion));
        let mut story = self.story.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(*story, Story::Unknown) {
            *story = Story::Known(snapshot);
        }
    }

    /// Reports what there was, once. Calls no driver.
    pub(crate) fn tell(&self) {
        let story = {
            let mut story = self.story.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *story, Story::Told)
        };
        let snapshot = match story {
            Story::Unknown => self.snapshot(Occasion::NeverClosed),
            Story::Known(mut snapshot) => {
                snapshot.failed_frees = self.registry.failed_frees();
                snapshot.broken = self.registry.broken();
                *snapshot
            }
            Story::Told => return,
        };
        // The report may run the program's logger. Whatever that does, the rest is done, and a drop
        // does not panic.
        let reported = catch_unwind(AssertUnwindSafe(|| {
            report::emit(&snapshot, &self.report);
        }));
        drop(reported);
    }

    /// Lets a teardown that is under way on another thread end, for a little while.
    pub(crate) fn let_teardown_end(&self, until: Instant) {
        if self.gate.is_closed() && self.tearing.load(Ordering::Acquire) != this_thread() {
            self.gate.wait_for_teardown_until(until);
        }
    }
}
