//! Teardown of a context: wait for the device, take a snapshot, free what is left, release the context, report.
//!
//! Teardown takes the snapshot before it frees anything, and reports it after: the driver may refuse a free, and the
//! report includes failed frees too (invariant 3). If the process exits in between, the exit handler reports the
//! snapshot.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::Instant;

use cuguard_driver::result::{self, CallError, context, device, event, stream};
use cuguard_driver::sys::{CUresult, CUstream, flags};
use cuguard_registry::{Key, ResourceKind, SnapshotReason, record_context_ended};
use cuguard_sync::process;

use crate::core::owned::escaped_pools;
use crate::core::release::deferred;
use crate::core::release::free;
use crate::core::release::listed_handle::{destroy_event, record_event};
use crate::core::release::page_locked;
use crate::core::release::peer_access;
use crate::core::release::wait::WaitFailures;
use crate::core::shared::context_state::{ContextState, Source, failed_call, this_thread};
use crate::core::shared::open_contexts;
use crate::core::teardown::peer_streams;
use crate::error::{Error, Result};

impl ContextState {
    /// Tears the context down, once; later calls return `Ok`. Returns the first error; the rest is done all the same.
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
        // What the callbacks own is freed, and no leak. They are the program's: their drops may do anything.
        drop(catch_unwind(AssertUnwindSafe(|| self.callbacks.close())));
        // A callback that runs on another thread may drop guards until it returns, and needs the gate open for it.
        self.callbacks.wait_for_calls();
        self.teardown_thread.store(this_thread(), Ordering::Release);
        // Waits for the operations that are inside.
        if !self.gate.close() {
            return Ok(());
        }
        // The process may have begun to exit while this waited; from here on the exit handler waits for this.
        let inside = self.gate.enter_closed();
        if process::is_exiting() {
            self.teardown_thread.store(0, Ordering::Release);
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
        keep(self.check(operation, pushed, None));
        if pushed.is_ok() {
            // While a stream captures, the context cannot be waited for.
            self.end_captures();
            keep(self.wait_for_device(operation));
        }
        peer_streams::wait(self, operation);
        // False if the exit handler already reports from the registry.
        let is_ours = self.take_snapshot(reason);
        if is_ours && !process::is_exiting() {
            keep(self.free_leaks(operation, pushed));
        }
        self.destroy_events(pushed);
        peer_access::end_all_to(self);
        if pushed.is_ok() && !process::is_exiting() {
            self.captures.trim(self.device);
            let _ = context::pop_current();
        }
        peer_access::forget_all_of(self);
        let released = self.release_context(operation);
        if released.is_ok() && self.has_ended() {
            page_locked::remove_all_in(self.context);
            record_context_ended(self.recorded_number());
        }
        keep(released);
        self.unregistered.finish();
        drop(inside);
        // Other threads may wait for this while they hold a lock that the report needs.
        self.gate.finish();
        self.report_once();
        self.teardown_thread.store(0, Ordering::Release);
        first
    }

    /// Fails inside a host function, where the driver permits no call.
    fn check_permitted(&self, operation: &'static str) -> Result<()> {
        // Where the context is closed, or the process is exiting, what follows finds that too.
        let inside = self.try_enter();
        if inside.is_some() && deferred::in_host_function() {
            let error = CallError {
                function: "cuCtxGetCurrent",
                code: CUresult::NOT_PERMITTED,
            };
            return Err(self.error(operation, error, None));
        }
        Ok(())
    }

    /// Ends all captures and destroys their graphs. The gate is closed, and the context current.
    fn end_captures(&self) {
        for stream in self.captures.take() {
            if process::is_exiting() {
                return;
            }
            // SAFETY: it was on the list, so it is alive: teardown destroys it later.
            if let Ok(graph) = unsafe { stream::end_capture(stream) } {
                let key = Key::new(ResourceKind::Graph, graph.0 as u64);
                // SAFETY: the graph of the capture; no other reference exists.
                if let Err(error) = unsafe { free::free(key, CUstream::NULL) } {
                    self.record_failed_free(key, 0, None, error);
                }
            }
        }
    }

    /// Makes the context current. All that follows needs it, so it is retried.
    fn push(&self, operation: &'static str) -> result::Result {
        let mut pushed = Ok(());
        for _ in 0..WaitFailures::ATTEMPTS {
            pushed = self.push_current(operation);
            if pushed.is_ok() || process::is_exiting() {
                break;
            }
            std::thread::sleep(WaitFailures::PAUSE);
        }
        pushed
    }

    /// Waits for the device. Scopes rely on it, so it is retried. Where the driver returns again and again that the
    /// context is unusable, nothing runs in it either.
    fn wait_for_device(&self, operation: &'static str) -> Result<()> {
        let mut first = Ok(());
        let mut dead = 0;
        // By another guard of the context: the captures of this one have ended.
        let mut captures = open_contexts::captures_in(self.context, self.device);
        let mut ended_by_wait = false;
        for _ in 0..WaitFailures::ATTEMPTS {
            if process::is_exiting() {
                break;
            }
            let waited = match captures {
                false => context::synchronize(),
                true => self.wait_for_streams(),
            };
            let Err(error) = waited else {
                let only_streams = captures && !(ended_by_wait && context::synchronize().is_ok());
                self.only_streams_idle
                    .store(only_streams, Ordering::Release);
                self.device_idle.store(true, Ordering::Release);
                break;
            };
            if error.code == CUresult::STREAM_CAPTURE_UNSUPPORTED && !captures {
                // It has begun since, or is other code's. The wait has ended it.
                (captures, ended_by_wait) = (true, true);
                continue;
            }
            first = first.and(Err(self.error(operation, error, None)));
            if process::is_exiting() {
                break;
            }
            // SAFETY: queries the default stream of the current context.
            let query = unsafe { stream::query(CUstream::NULL) };
            let is_dead =
                error.code.ends_all_work() && query.is_err_and(|error| error.code.ends_all_work());
            dead = if is_dead { dead + 1 } else { 0 };
            self.device_idle
                .store(dead == WaitFailures::ATTEMPTS, Ordering::Release);
            std::thread::sleep(WaitFailures::PAUSE);
        }
        // The driver fails to wait for the context, and does not call it dead.
        let is_known = self.device_idle.load(Ordering::Acquire) || process::is_exiting();
        if !is_known && self.wait_for_streams().is_ok() {
            self.only_streams_idle.store(true, Ordering::Release);
            self.device_idle.store(true, Ordering::Release);
        }
        first
    }

    /// Waits for all streams of this guard and for the default stream. That is all of its work, without that of other
    /// guards of the same context.
    fn wait_for_streams(&self) -> result::Result {
        let mut waited = Ok(());
        let mut events = Vec::new();
        // Not locked during the wait: a host function that is waited for may drop a stream.
        let handles = self.streams.lock();
        let streams = handles.live.values();
        let streams = streams.map(|(key, _)| CUstream(key.address as usize));
        for stream in streams.chain([CUstream::LEGACY]) {
            let recorded = event::create(flags::EVENT_DISABLE_TIMING).and_then(|event| {
                events.push(event);
                // SAFETY: the stream is on the list, or the default stream, so it is alive; both are of the current context.
                unsafe { event::record(event, stream) }
            });
            waited = waited.and(recorded);
        }
        drop(handles);
        for event in events {
            // All of them, whatever failed before.
            // SAFETY: created above.
            waited = waited.and(unsafe { event::synchronize(event) });
            // SAFETY: created above; no other reference exists. A failure is recorded.
            let _ = unsafe { destroy_event(self, event) };
        }
        waited
    }

    /// Frees what is live: all of it, or with `free_leaks` off only what guards have dropped and could not free. Where the
    /// device may still work, only what the driver frees after that work.
    fn free_leaks(&self, operation: &'static str, pushed: result::Result) -> Result<()> {
        let mut first = Ok(());
        let mut stream_ordered = false;
        // Makes the frees of a pool's memory complete.
        let synchronize = || {
            if pushed.is_ok() {
                // SAFETY: the default stream of the current context.
                let _ = unsafe { stream::synchronize(CUstream::NULL) };
            }
        };
        // Memory that escaped may be freed later, so its pool stays until the process exits.
        escaped_pools::keep_all_of(self);
        let records = match self.free_leaks {
            true => self.registry.drain(),
            false => self.registry.drain_deferred(),
        };
        let mut pooled = Vec::new();
        for (key, record) in records {
            if process::is_exiting() {
                return first.and(Err(Error::ProcessEnding { operation }));
            }
            // Pools are destroyed below, and their blocks with them.
            if matches!(key.kind, ResourceKind::Pooled | ResourceKind::Pool) {
                pooled.push((key, record));
                continue;
            }
            // Pools come last.
            if key.kind == ResourceKind::MemoryPool && std::mem::take(&mut stream_ordered) {
                synchronize();
            }
            stream_ordered |= key.kind == ResourceKind::StreamOrdered;
            let permitted = pushed.and_then(|()| self.check_idle_for(key.kind));
            // SAFETY: the record says that a guard owns this, and the closed gate keeps that guard from freeing it.
            // The context is current. Stream-ordered memory is freed on an idle device, so the default stream is as good as
            // any.
            let freed = permitted.and_then(|()| unsafe { free::free(key, CUstream::NULL) });
            if freed.is_ok() {
                self.registry.record_reclaimed(key, &record);
            }
            match freed {
                Ok(()) if matches!(key.kind, ResourceKind::Pinned | ResourceKind::Registered) => {
                    page_locked::remove(key.address);
                    self.unregistered.add(key.address);
                }
                Ok(()) => {}
                Err(error) => {
                    let bytes = record.bytes();
                    first = first.and(Err(self.error(operation, error, Some(bytes))));
                    self.record_failed_free(key, bytes, Some(record), error);
                }
            }
        }
        if stream_ordered && !process::is_exiting() {
            synchronize();
        }
        let pools = self.pools_of_cuguard();
        let destroyed = match pushed {
            Ok(()) => pools.destroy_all(self),
            Err(error) => {
                pools.lose_all(self, error);
                Err(error)
            }
        };
        if destroyed.is_ok() {
            for (key, record) in &pooled {
                self.registry.record_reclaimed(*key, record);
            }
        }
        first.and(self.check(operation, destroyed, None))
    }

    /// Fails for what cannot be freed while the device may still use it. (`cuMemFree` and `cuMemHostUnregister` wait for the
    /// device; streams, events and graphs are destroyed after their work.)
    fn check_idle_for(&self, kind: ResourceKind) -> result::Result {
        let waits = !matches!(kind, ResourceKind::StreamOrdered | ResourceKind::Module);
        match waits || self.device_idle.load(Ordering::Acquire) {
            true => Ok(()),
            false => Err(CallError {
                function: "cuCtxSynchronize",
                code: CUresult::NOT_READY,
            }),
        }
    }

    /// Destroys the events by which other contexts wait for frees in this one. Other code may retain the driver's
    /// context, and the events with it.
    fn destroy_events(&self, pushed: result::Result) {
        for event in self.streams.take_events() {
            match pushed {
                _ if process::is_exiting() => {}
                // SAFETY: it is off the list, where waiters look it up, and the closed gate has waited for those that
                // did so before. The context is current.
                Ok(()) => drop(unsafe { destroy_event(self, event) }),
                Err(error) => record_event(self, event, error),
            }
        }
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that releases contexts"
    )]
    fn release_context(&self, operation: &'static str) -> Result<()> {
        if process::is_exiting() {
            return Err(Error::ProcessEnding { operation });
        }
        let released = match self.source {
            Source::Borrowed => Ok(()),
            // SAFETY: releases what the builder retained, once.
            Source::Primary => unsafe { device::primary_ctx_release(self.device as i32) },
            Source::Own => {
                // SAFETY: the builder created it or took ownership of it, and the gate is closed.
                let destroyed = unsafe { context::destroy(self.context) };
                if destroyed.is_ok() {
                    self.unregistered.add_all();
                    // Its work is destroyed with it.
                    self.device_idle.store(true, Ordering::Release);
                }
                destroyed
            }
        };
        let kept = match self.keeps_primary {
            // SAFETY: releases what the builder could not, once.
            true => unsafe { device::primary_ctx_release(self.device as i32) },
            false => Ok(()),
        };
        let released = released.and(kept);
        if let Err(error) = released {
            let failed = failed_call(operation, error);
            self.registry.note_not_released(failed);
        }
        self.check(operation, released, None)
    }

    /// Whether the driver's context ended when it was released. Other code may use it still.
    fn has_ended(&self) -> bool {
        match self.source {
            Source::Borrowed => false,
            Source::Primary => {
                let active = device::primary_ctx_is_active(self.device as i32);
                active.is_ok_and(|active| !active)
            }
            Source::Own => true,
        }
    }

    /// Waits for a teardown on another thread, until `until`. Returns whether none is in progress.
    pub(crate) fn wait_for_other_teardown(&self, until: Instant) -> bool {
        !self.gate.is_closed()
            || self.teardown_thread.load(Ordering::Acquire) == this_thread()
            || self.gate.wait_for_teardown_until(until)
    }
}
