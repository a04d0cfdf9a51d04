//! The driver's functions that a pool calls.
//!
//! The caller is inside the gate of the context, or is teardown. Each function makes the context current if it is not.
//! Allocating and freeing a cached block calls none of these functions.

use std::sync::{Arc, Weak};

use cuguard_driver::result::{self, CallError, copy, event, stream, virtual_memory};
use cuguard_driver::sys::{CUcontext, CUevent, CUresult, flags, stream_capture_mode};
use cuguard_pool::{Driver, PoolError};
use cuguard_registry::PAGE;
use cuguard_sync::process;

use crate::core::pools::copies::CopyStream;
use crate::core::pools::stream_id::StreamId;
use crate::core::release::listed_handle;
use crate::core::shared::context_state::{ContextState, this_thread};

/// The driver of one context.
#[derive(Debug)]
pub(crate) struct PoolDriver {
    state: Weak<ContextState>,
    context: CUcontext,
    device: i32,
    copies: CopyStream,
}

impl PoolDriver {
    pub(crate) fn new(state: &Arc<ContextState>) -> Self {
        Self {
            state: Arc::downgrade(state),
            context: state.context,
            device: state.device as i32,
            copies: CopyStream::default(),
        }
    }

    /// Makes the context current until the returned value is dropped.
    fn enter(&self) -> result::Result<Current> {
        if process::is_exiting() {
            return Err(CallError {
                function: "cuCtxPushCurrent",
                code: CUresult::DEINITIALIZED,
            });
        }
        let is_current = result::context::current()? == Some(self.context);
        if !is_current {
            // SAFETY: the context is alive: the caller is inside its gate.
            unsafe { result::context::push_current(self.context)? };
        }
        // A capture of other code in global mode prohibits most of these calls on every thread, and a call would end it.
        // They concern nothing that a capture uses.
        let mode = stream::exchange_capture_mode(stream_capture_mode::RELAXED);
        Ok(Current {
            pushed: !is_current,
            mode: mode.ok(),
        })
    }
}

/// The context is current, and calls that a capture does not concern do not end it.
struct Current {
    pushed: bool,
    /// The capture mode of the thread before.
    mode: Option<u32>,
}

impl Drop for Current {
    fn drop(&mut self) {
        if process::is_exiting() {
            return;
        }
        if let Some(mode) = self.mode {
            // It was the mode of this thread before, so it is valid.
            let _ = stream::exchange_capture_mode(mode);
        }
        if self.pushed {
            // Pops what `enter` pushed.
            let _ = result::context::pop_current();
        }
    }
}

/// An event after which blocks can be reused.
#[derive(Debug)]
pub(crate) struct Point {
    event: CUevent,
    state: Weak<ContextState>,
}

impl Drop for Point {
    fn drop(&mut self) {
        if process::is_exiting() {
            return;
        }
        let Some(state) = self.state.upgrade() else {
            return;
        };
        // Points are dropped inside the gate, and by teardown. Where the context is closed, this thread may still be
        // inside: teardown waits for it, and then destroys the event. What is left after that is destroyed with the context.
        if state.is_closed() && !state.is_torn_down_by(this_thread()) {
            let _ = state.streams.add_event(self.event);
            return;
        }
        let driver = PoolDriver::new(&state);
        match driver.enter() {
            // SAFETY: this is the only reference, and the context is current.
            Ok(_current) => drop(unsafe { listed_handle::destroy_event(&state, self.event) }),
            Err(error) => listed_handle::record_event(&state, self.event, error),
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the one place that frees virtual memory, for the pool"
)]
impl Driver for PoolDriver {
    type Error = CallError;
    type Stream = StreamId;
    type Point = Point;

    #[inline]
    fn stream_id(stream: &StreamId) -> u64 {
        stream.number
    }

    fn is_out_of_memory(error: &CallError) -> bool {
        error.code == CUresult::OUT_OF_MEMORY
    }

    fn reserve(&self, bytes: u64) -> result::Result<u64> {
        let _current = self.enter()?;
        // As many addresses as the device has memory at once: the pool tries less, and no block needs more.
        let most = result::device::total_mem(self.device)?.next_power_of_two();
        if bytes > most as u64 {
            return Err(CallError {
                function: "cuMemAddressReserve",
                code: CUresult::OUT_OF_MEMORY,
            });
        }
        virtual_memory::address_reserve(bytes as usize, PAGE as usize)
    }

    fn unreserve(&self, address: u64, bytes: u64) -> result::Result {
        let _current = self.enter()?;
        // SAFETY: the pool reserved it, has unmapped all of it, and does not use the addresses any more.
        unsafe { virtual_memory::address_free(address, bytes as usize) }
    }

    fn require_free(&self, bytes: u64) -> result::Result {
        let _current = self.enter()?;
        match result::memory::info()?.free as u64 >= bytes {
            true => Ok(()),
            false => Err(CallError {
                function: "cuMemCreate",
                code: CUresult::OUT_OF_MEMORY,
            }),
        }
    }

    fn create(&self, bytes: u64) -> result::Result<u64> {
        let _current = self.enter()?;
        virtual_memory::create(bytes as usize, self.device)
    }

    fn release(&self, handle: u64) -> result::Result {
        let _current = self.enter()?;
        // SAFETY: the pool created it and does not use it any more.
        unsafe { virtual_memory::release(handle) }
    }

    fn map(&self, address: u64, bytes: u64, handle: u64) -> result::Result {
        let _current = self.enter()?;
        // SAFETY: a range of the pool with nothing mapped there, and a live handle of this size. The pool keeps the parts
        // of a handle that several addresses use apart.
        unsafe { virtual_memory::map(address, bytes as usize, handle) }
    }

    fn unmap(&self, address: u64, bytes: u64) -> result::Result {
        let _current = self.enter()?;
        // SAFETY: the blocks in the range are freed and the streams that used them have passed that point; or the pool is
        // compacted, with the device idle.
        unsafe { virtual_memory::unmap(address, bytes as usize) }
    }

    fn set_access(&self, address: u64, bytes: u64) -> result::Result {
        let _current = self.enter()?;
        // SAFETY: a range of the pool, in which the pool has mapped everything.
        unsafe { virtual_memory::set_access(address, bytes as usize, self.device) }
    }

    fn copy(&self, to: u64, from: u64, bytes: u64) -> result::Result {
        let _current = self.enter()?;
        // SAFETY: both ranges are mapped, the target is free, and the device is idle otherwise.
        unsafe { copy::dtod_async(to, from, bytes as usize, self.copies.get()) }
    }

    fn wait_for_copies(&self) -> result::Result {
        let _current = self.enter()?;
        match self.state.upgrade() {
            Some(state) => self.copies.wait(&state),
            // Destroyed with its context.
            None => Ok(()),
        }
    }

    fn record(&self, on: &StreamId) -> result::Result<Point> {
        let _current = self.enter()?;
        // SAFETY: the stream is alive: the pool forgets it before it ends.
        if unsafe { stream::is_capturing(on.handle)? } {
            // The event would become a node of the graph.
            return Err(CallError {
                function: "cuEventRecord",
                code: CUresult::STREAM_CAPTURE_UNSUPPORTED,
            });
        }
        let point = Point {
            event: event::create(flags::EVENT_DISABLE_TIMING)?,
            state: self.state.clone(),
        };
        // SAFETY: both are alive, and of the current context.
        unsafe { event::record(point.event, on.handle)? };
        Ok(point)
    }

    fn is_complete(&self, point: &Point) -> result::Result<bool> {
        let _current = self.enter()?;
        // SAFETY: the event is alive.
        unsafe { event::query(point.event) }
    }
}

/// Records that the context cannot be used any more, where that is what an error of the pool says.
pub(in crate::core) fn note_if_broken<T>(
    state: &ContextState,
    operation: &'static str,
    result: &std::result::Result<T, PoolError<CallError>>,
) {
    if let Err(PoolError::Driver { error, .. }) = result {
        state.note_if_broken(operation, Err(*error));
    }
}
