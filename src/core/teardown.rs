//! The end of a context: wait for the device, take down what is still there, free it, give the
//! context back, and report.
//!
//! The facts for the report are taken before anything is freed. They are told after, as the driver
//! may refuse a free, and that belongs into the report too (law 3). Should the process end in the
//! meantime, the exit handler tells them instead.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::Instant;

use cuguard_driver::api;
use cuguard_driver::sys::{CUresult, CUstream};

use super::context_state::{ContextState, Source, this_thread};
use super::stream_list::{destroy_event, file_event};
use super::wait::{Refusals, is_dead};
use super::{deferred, free};
use crate::error::{Error, Result};
use cuguard_registry::{FailedCall, FailedFree, Kind, SnapshotReason};
use cuguard_sync::process;

impl ContextState {
    /// Ends the context. Once; later calls find it done. The first thing that went wrong is
    /// answered, the rest is done all the same.
    pub(crate) fn tear_down(&self, operation: &'static str, reason: SnapshotReason) -> Result<()> {
        if self.gate.is_closed() {
            return Ok(());
        }
        let ending = Err(Error::ProcessEnding { operation });
        if process::is_exiting() {
            return ending;
        }
        // Frees what was dropped in host functions, which is no leak.
        deferred::run();
        self.check_permitted(operation)?;
        // What they hold is freed, and no leak. They are the program's, and may do anything when they
        // go.
        drop(catch_unwind(AssertUnwindSafe(|| self.callbacks.close())));
        // One that another thread is in drops what it likes until it is over, and needs the gate open
        // for it.
        self.callbacks.wait_for_calls();
        self.tearing.store(this_thread(), Ordering::Release);
        // Operations under way end first.
        if !self.gate.close() {
            return Ok(());
        }
        // The exit of the process may have begun while this waited; from here on it waits for this.
        let inside = self.gate.count_in();
        if process::is_exiting() {
            self.tearing.store(0, Ordering::Release);
            self.gate.finish();
            return ending;
        }
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
        // Where the exit handler tells already, it looks at the registry at this moment.
        let ours = self.note(reason);
        if ours && !process::is_exiting() {
            keep(self.free_leaks(operation, &pushed));
        }
        self.take_marks(&pushed);
        if pushed.is_ok() && !process::is_exiting() {
            // SAFETY: takes away what was pushed above.
            let _ = unsafe { api::cuCtxPopCurrent_v2(std::ptr::null_mut()) };
        }
        keep(self.give_back(operation));
        self.unregistered.finish();
        drop(inside);
        // Others may wait for this with a lock in their hands that the report needs.
        self.gate.finish();
        self.tell();
        self.tearing.store(0, Ordering::Release);
        first
    }

    /// Fails inside a host function, where the driver permits no call.
    fn check_permitted(&self, operation: &'static str) -> Result<()> {
        let Some(_inside) = self.pass_in() else {
            // Closed, or the process is exiting: what follows finds that too.
            return Ok(());
        };
        let code = match deferred::in_host_function() {
            true => CUresult::NOT_PERMITTED,
            false => CUresult::SUCCESS,
        };
        self.check(operation, "cuCtxGetCurrent", code, None)
    }

    /// Makes the context current. All that follows needs it, so a refusal is not taken at once.
    fn push(&self, operation: &'static str) -> Result<()> {
        let mut pushed = Ok(());
        for _ in 0..Refusals::ENOUGH {
            // SAFETY: the context is alive until it is given back.
            let code = unsafe { api::cuCtxPushCurrent_v2(self.context) };
            pushed = self.check(operation, "cuCtxPushCurrent", code, None);
            if pushed.is_ok() || process::is_exiting() {
                break;
            }
            std::thread::sleep(Refusals::PAUSE);
        }
        pushed
    }

    /// Waits for the device. Scopes count on it, so a wait that is refused is tried again a few
    /// times. Where the driver says that the context is of no use any more, nothing is under way in
    /// it either.
    fn wait_for_device(&self, operation: &'static str) -> Result<()> {
        let mut answer = Ok(());
        let mut dead = 0;
        for _ in 0..Refusals::ENOUGH {
            if process::is_exiting() {
                break;
            }
            // SAFETY: the context is current.
            let code = unsafe { api::cuCtxSynchronize() };
            answer = answer.and(self.check(operation, "cuCtxSynchronize", code, None));
            if code.is_success() {
                self.settled.store(true, Ordering::Release);
                break;
            }
            if process::is_exiting() {
                break;
            }
            // SAFETY: asks the default stream of the current context.
            let idle = unsafe { api::cuStreamQuery(CUstream::NULL) };
            dead = if is_dead(code) && is_dead(idle) {
                dead + 1
            } else {
                0
            };
            self.settled
                .store(dead == Refusals::ENOUGH, Ordering::Release);
            std::thread::sleep(Refusals::PAUSE);
        }
        answer
    }

    /// Frees what is alive, on a device that has nothing left to do: all of it, or where that is not
    /// wanted only what guards have dropped that could not free it.
    fn free_leaks(&self, operation: &'static str, pushed: &Result<()>) -> Result<()> {
        let mut first = Ok(());
        let mut stream_ordered = false;
        // Memory that was released may be freed later, so its pool stays, until the process exits.
        std::mem::forget(std::mem::take(&mut *self.escaped_pools()));
        let records = match self.free_leaks {
            true => self.registry.drain(),
            false => self.registry.drain_deferred(),
        };
        for (key, record) in records {
            if process::is_exiting() {
                return first.and(Err(Error::ProcessEnding { operation }));
            }
            if key.kind == Kind::MemoryPool && std::mem::take(&mut stream_ordered) && pushed.is_ok()
            {
                // Pools come last, when their memory is really free. SAFETY: the context is current.
                let _ = unsafe { api::cuStreamSynchronize(CUstream::NULL) };
            }
            stream_ordered |= key.kind == Kind::StreamOrdered;
            let (function, code) = match pushed {
                // SAFETY: the record says that a guard owns this, and the closed gate keeps that
                // guard from ever freeing it. The context is current. The device is idle, so the
                // default stream is as good as any.
                Ok(()) => (free::function(key.kind), unsafe {
                    free::free(key, CUstream::NULL)
                }),
                Err(error) => (
                    "cuCtxPushCurrent",
                    error.code().unwrap_or(CUresult::UNKNOWN),
                ),
            };
            if code.is_success() {
                if matches!(key.kind, Kind::Pinned | Kind::Registered) {
                    self.unregistered.add(key.address);
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
                code.name().unwrap_or_default(),
            ));
        }
        if stream_ordered && pushed.is_ok() && !process::is_exiting() {
            // So that the pool sees the frees happen. SAFETY: the context is current.
            let _ = unsafe { api::cuStreamSynchronize(CUstream::NULL) };
        }
        first
    }

    /// Destroys the marks by which other contexts wait for frees in this one. Others may keep the
    /// driver's context alive, and the events with it.
    fn take_marks(&self, pushed: &Result<()>) {
        for key in self.streams.take_marks() {
            match pushed {
                _ if process::is_exiting() => {}
                // SAFETY: the list has let go of it, those who wait look there, and the closed gate
                // keeps them from looking at the event. The context is current.
                Ok(()) => unsafe { destroy_event(self, key) },
                Err(error) => {
                    let code = error.code().unwrap_or(CUresult::UNKNOWN);
                    file_event(self, key, "cuCtxPushCurrent", code);
                }
            }
        }
    }

    fn give_back(&self, operation: &'static str) -> Result<()> {
        if process::is_exiting() {
            return Err(Error::ProcessEnding { operation });
        }
        let (function, code) = match self.source {
            Source::Primary => {
                // SAFETY: gives back what the builder retained, once.
                let code = unsafe { api::cuDevicePrimaryCtxRelease_v2(self.device as i32) };
                ("cuDevicePrimaryCtxRelease", code)
            }
            Source::Own => {
                // SAFETY: the builder created it, and the closed gate keeps all others out.
                let code = unsafe { api::cuCtxDestroy_v2(self.context) };
                if code.is_success() {
                    self.unregistered.add_all();
                    // Its work went with it.
                    self.settled.store(true, Ordering::Release);
                }
                ("cuCtxDestroy", code)
            }
        };
        if !code.is_success() {
            let name = code.name().unwrap_or_default();
            self.registry
                .note_not_released(FailedCall::new(operation, function, code.0, name));
        }
        self.check(operation, function, code, None)
    }

    /// Lets a teardown that is under way on another thread end, for a little while. False where it
    /// is still under way.
    pub(crate) fn let_teardown_end(&self, until: Instant) -> bool {
        !self.gate.is_closed()
            || self.tearing.load(Ordering::Acquire) == this_thread()
            || self.gate.wait_for_teardown_until(until)
    }
}
