//! The end of a scope: it returns only when the stream has finished the scope's work.
//!
//! [`Stream::scope`](crate::Stream::scope) is sound only because its end never gives up on a device that is still
//! working:
//!
//! - It synchronizes with the stream. If that fails, it synchronizes with the whole context. If that fails too, it
//!   queries the stream, and waits for an event in it. If one of these calls succeeds, the work is done, whatever
//!   failed before.
//! - If all of them fail repeatedly with errors that mean an unusable context, nothing is in flight. A context is in
//!   this state after a fault on the device, or after other code destroyed the context; the driver has stopped all of
//!   its work.
//!   `CUDA_ERROR_UNKNOWN` is not among these errors.
//! - As long as they fail with any other error, it retries them. After 20 seconds without a sign that the device works, it
//!   aborts the process: the device may still write, and it would write to memory that is used for other things.
//! - If the context was closed within the scope, teardown has waited for the device. If teardown could not wait (the
//!   context cannot be made current, and other code keeps it alive), the process is aborted too.
//! - In a forked child nothing is in flight: the child has a copy of the memory.
//! - A scope on one stream frees its scratch memory on the stream before the wait. A scope over several streams frees
//!   it after the wait for all of them, because work on one stream may use the scratch memory of another. Host
//!   functions are dropped after the wait: see `core/host_call.rs`.
//! - If the process is exiting, the driver must not be called, so it is unknown whether the work is done. The thread
//!   blocks here: the exit, on another thread, ends it. If that takes half a minute because the exit waits for this
//!   thread, the process is aborted. (It is always another thread: this one enqueued its work before the exit began,
//!   and a thread that calls `exit` does not return.)

use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cuguard_driver::sys::CUresult;

use super::captured::Capture;
use super::uses::{StreamGroup, Used};
use crate::core::host_call::{CallGroup, HostCall, Panic};
use crate::core::lock::lock;
use crate::core::wait::{WaitFailures, abort, block_until_exit, wait_until_idle_or_dead};
use crate::core::{
    ContextState, OwnedResource, PeerUse, StreamState, log_error, log_or_print_error,
};
use crate::error::{Error, Result};
use cuguard_sync::process;

const OPERATION: &str = "Stream::scope";

/// Which memory of another context a scope uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerMemory {
    /// Page-locked host memory.
    Host,
    /// Any other memory, which may be a block of a pool.
    Device,
}

/// What a scope has in flight. Waits for the stream on drop, also by a panic.
#[derive(Debug)]
pub(crate) struct ScopeEnd {
    core: Arc<StreamState>,
    in_flight: AtomicBool,
    /// Memory that lives as long as the scope, freed in stream order.
    scratch: Mutex<Vec<OwnedResource>>,
    /// Created by the first host function.
    group: OnceLock<Arc<CallGroup>>,
    calls: Mutex<Vec<Arc<HostCall>>>,
    /// Of the graphs that the scope launches.
    graphs: Mutex<Vec<Arc<CallGroup>>>,
    /// In a capture. Nothing is in flight then.
    pub(super) capture: Option<Capture>,
    /// In a scope over several streams: all of them.
    pub(super) beside: Option<StreamGroup>,
    /// Contexts whose memory this scope uses. Dropped after the wait.
    peers: Mutex<Vec<PeerUse>>,
}

/// The value of a mutex that no other thread can hold: for the end of a scope, where in a forked child a thread that does
/// not exist may have locked it.
pub(super) fn take<T: Default>(mutex: &mut Mutex<T>) -> T {
    mem::take(mutex.get_mut().unwrap_or_else(PoisonError::into_inner))
}

fn keep_first(first: &mut Option<Panic>, panic: Option<Panic>) {
    match first {
        None => *first = panic,
        // Its drop may panic too.
        Some(_) => mem::forget(panic),
    }
}

impl ScopeEnd {
    pub(crate) fn new(core: &Arc<StreamState>) -> Self {
        Self {
            core: core.clone(),
            in_flight: AtomicBool::new(false),
            scratch: Mutex::default(),
            group: OnceLock::new(),
            calls: Mutex::default(),
            graphs: Mutex::default(),
            capture: None,
            beside: None,
            peers: Mutex::default(),
        }
    }

    /// Lets the teardown of another context wait for this scope.
    ///
    /// The caller is inside the gate of that context.
    pub(crate) fn keep_peer(&self, state: &Arc<ContextState>, memory: PeerMemory) {
        let mut peers = lock(&self.peers);
        if !peers.iter().any(|peer| peer.is_of(state)) {
            let streams = self.streams().iter();
            peers.extend(streams.map(|stream| PeerUse::new(state, stream)));
        }
        if memory == PeerMemory::Device {
            let of_state = peers.iter().filter(|peer| peer.is_of(state));
            of_state.for_each(PeerUse::add_device_memory);
        }
    }

    /// The streams of the scope.
    pub(super) fn streams(&self) -> &[Arc<StreamState>] {
        match &self.beside {
            Some(group) => group.streams(),
            None => std::slice::from_ref(&self.core),
        }
    }

    /// Orders the streams of the scope after the one that memory was allocated on.
    pub(super) fn order_after(&self, operation: &'static str, home: &StreamState) -> Result<()> {
        let mut streams = self.streams().iter();
        streams.try_for_each(|stream| stream.order_after(operation, home))
    }

    /// Runs `enqueue`, whose work uses what is bound: after what other streams of the scope do with it, where that conflicts.
    #[inline]
    pub(super) fn using<R>(
        &self,
        operation: &'static str,
        used: &[Used<'_>],
        enqueue: impl FnOnce() -> Result<R>,
    ) -> Result<R> {
        match &self.beside {
            Some(group) => group.enqueue(operation, used, enqueue),
            None => enqueue(),
        }
    }

    pub(crate) fn core(&self) -> &Arc<StreamState> {
        &self.core
    }

    /// Work is about to be enqueued.
    pub(crate) fn expect_work(&self) {
        if self.capture.is_none() {
            self.in_flight.store(true, Ordering::Release);
        }
    }

    /// Frees the memory in stream order when the scope ends.
    pub(crate) fn keep_scratch(&self, memory: OwnedResource) {
        lock(&self.scratch).push(memory);
    }

    /// Keeps a closure until it has run, or the scope has ended.
    ///
    /// # Safety
    ///
    /// What the closure borrows is valid until [`finish`](Self::finish) has returned; in a capture, for as long as the graph
    /// and its executable exist.
    pub(crate) unsafe fn keep_call(&self, function: Box<dyn FnMut() + Send + '_>) -> Arc<HostCall> {
        // SAFETY: `finish` drops it, or waits until it has run; the graph of a capture drops it.
        let call = unsafe { HostCall::new(self.group(), function) };
        let mut calls = lock(&self.calls);
        if calls.len() == calls.capacity() {
            // Before the list grows: most of them have run.
            calls.retain(|call| !call.is_finished());
        }
        calls.push(call.clone());
        call
    }

    fn group(&self) -> &Arc<CallGroup> {
        self.group.get_or_init(Arc::default)
    }

    /// The calls are a graph's from now on.
    pub(super) fn take_group(&mut self) -> Arc<CallGroup> {
        self.group.take().unwrap_or_default()
    }

    pub(super) fn take_calls(&mut self) -> Vec<Arc<HostCall>> {
        take(&mut self.calls)
    }

    /// Carries the panics of a graph's host functions to the end of the scope.
    pub(crate) fn keep_group(&self, group: &Arc<CallGroup>) {
        lock(&self.graphs).push(group.clone());
    }

    /// Frees, waits, and drops the host functions. Returns the first error on the way and the first panic of a host
    /// function. A second call does nothing.
    pub(crate) fn finish(&mut self) -> (Result<()>, Option<Panic>) {
        self.free_scratch();
        let (waited, idle) = self.wait();
        (waited, self.finish_calls(idle))
    }

    /// The same for all streams of a scope: waits for all of them before anything is freed or dropped, as work of one may use what
    /// another has.
    pub(super) fn finish_all(ends: &mut [Self]) -> (Result<()>, Option<Panic>) {
        let (mut waited, mut idle) = (Ok(()), true);
        for end in &mut *ends {
            let (of_stream, is_idle) = end.wait();
            waited = waited.and(of_stream);
            idle &= is_idle;
        }
        let mut first = None;
        for end in ends {
            end.free_scratch();
            keep_first(&mut first, end.finish_calls(idle));
        }
        (waited, first)
    }

    fn free_scratch(&mut self) {
        let scratch = take(&mut self.scratch);
        if process::is_forked() {
            // It belongs to the parent.
            mem::forget(scratch);
        } else {
            // On the stream, after the scope's work. A failed free is recorded.
            drop(scratch);
        }
    }

    /// Drops the host functions, after the wait. Returns the first panic of one.
    fn finish_calls(&mut self, idle: bool) -> Option<Panic> {
        let calls = take(&mut self.calls);
        if process::is_forked() {
            // They run in the parent. Here a thread that does not exist may hold their lock.
            mem::forget(calls);
            return None;
        }
        let mut first = self.group.get().and_then(|group| group.close());
        for group in take(&mut self.graphs) {
            let panic = match idle {
                true => group.take_panic(),
                // The device failed: a host function of the graph may be running, or still be called.
                false => group.close(),
            };
            keep_first(&mut first, panic);
        }
        for call in calls {
            keep_first(&mut first, call.settle_once(idle));
        }
        first
    }

    /// Waits for the stream. Returns the first error on the way, and whether the driver has said that the stream is idle.
    fn wait(&mut self) -> (Result<()>, bool) {
        let mut first = Ok(());
        if !mem::take(self.in_flight.get_mut()) {
            return (first, true);
        }
        let state = self.core.state();
        let mut failures = WaitFailures::default();
        loop {
            match state.enter_any_context(OPERATION) {
                Ok((entered, Ok(()))) => {
                    let stream = self.core.handle();
                    let mut idle = false;
                    let wait = || {
                        let (waited, is_idle) = wait_until_idle_or_dead(&entered, stream);
                        idle = is_idle;
                        waited
                    };
                    first = first.and(self.core.progress().track_wait(wait));
                    return (first, idle);
                }
                Ok((_entered, Err(error))) => {
                    first = first.and(Err(state.error(OPERATION, error, None)));
                    let query = match self.core.query_elsewhere() {
                        Ok(true) => return (first, true),
                        Ok(false) => CUresult::NOT_READY,
                        Err(code) => code,
                    };
                    if failures.is_dead_after(OPERATION, &[error.code, query]) {
                        return (first, false);
                    }
                }
                // Nothing writes to the child's copy of the memory.
                Err(error) if process::is_forked() => return (first.and(Err(error)), false),
                Err(_) if process::is_exiting() => block_until_exit(OPERATION),
                Err(_) => {
                    state.wait_for_teardown();
                    if !state.device_idle.load(Ordering::Acquire) {
                        abort(
                            OPERATION,
                            "the context was closed within the scope, and the driver refused to \
                             say whether the device has done its work",
                        );
                    }
                    return (first, false);
                }
            }
        }
    }
}

impl Drop for ScopeEnd {
    fn drop(&mut self) {
        self.abandon_capture();
        let (waited, panic) = self.finish();
        if let Err(error) = waited {
            log_error(&error);
        }
        // The panic that drops this goes on; that of a host function was printed when it began.
        mem::forget(panic);
    }
}

/// The outcome of a scope: of its closure, and of its end. `describe` is the text of an error that cannot be returned.
pub(super) fn conclude<R, E: From<Error>>(
    (waited, panic): (Result<()>, Option<Panic>),
    result: Result<R, E>,
    describe: fn(&E) -> String,
) -> Result<R, E> {
    let Some(panic) = panic else {
        if let Err(later) = &waited
            && result.is_err()
        {
            log_error(later);
        }
        return result.and_then(|value| waited.map(|()| value).map_err(E::from));
    };
    if let Err(later) = &waited {
        log_or_print_error(later);
    }
    // The panic of the host function must not be lost to one of the program's `Debug`.
    let described = catch_unwind(AssertUnwindSafe(|| result.as_ref().err().map(describe)));
    if let Ok(Some(error)) = described {
        log_or_print_error(&format_args!(
            "{error}; the panic of a host function continues"
        ));
    }
    resume_unwind(panic);
}
