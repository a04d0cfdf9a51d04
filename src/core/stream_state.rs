//! A stream as its guard and stream-ordered memory share it: memory is freed on its stream, so the stream lives as
//! long as the last of them.

use std::sync::Arc;

use cuguard_driver::result::{self, event, stream};
use cuguard_driver::sys::{CUevent, CUstream, flags};

use super::context_state::{ContextState, Entered};
use super::free_progress::{FreePoint, FreeProgress};
use super::owned_resource::OwnedResource;
use super::stream_list::{self, Listed};
use crate::error::Result;

/// The driver's stream, destroyed when the last that shares it goes.
#[derive(Debug)]
pub(crate) struct StreamState {
    /// Dropped before the handle is destroyed.
    listed: Listed,
    pub(crate) owned: OwnedResource,
}

impl StreamState {
    pub(crate) fn new(listed: Listed, owned: OwnedResource) -> Self {
        Self { listed, owned }
    }

    /// Destroys it and returns the driver's error.
    #[track_caller]
    pub(crate) fn close(self, operation: &'static str) -> Result<()> {
        drop(self.listed);
        self.owned.close(operation)
    }

    pub(crate) fn handle(&self) -> CUstream {
        CUstream(self.owned.address() as usize)
    }

    /// Not by way of the claim, which would have to look what it keeps alive: this is on the way of
    /// every stream-ordered allocation.
    pub(crate) fn state(&self) -> &Arc<ContextState> {
        self.listed.state()
    }

    /// Remembers that memory was freed on it.
    #[inline]
    pub(crate) fn note_free(&self, bytes: u64) {
        self.listed.note_free(bytes);
    }

    /// What was freed on it so far, for who waits by an event.
    pub(crate) fn moment(&self) -> (Arc<FreeProgress>, FreePoint) {
        self.listed.moment()
    }

    /// Has `wait` wait for the stream: what was freed on it before is then seen to be free.
    pub(crate) fn note_wait<T>(&self, wait: impl FnOnce() -> Result<T>) -> Result<T> {
        self.listed.note_wait(wait)
    }

    /// What this stream is given from now on happens after all that `other`, a stream of the same
    /// context, was given so far. Nothing waits here. It enters the gate, so the caller must not be
    /// inside.
    pub(crate) fn order_after(&self, operation: &'static str, other: &StreamState) -> Result<()> {
        let entered = self.state().enter(operation)?;
        if self.handle() == other.handle() {
            return Ok(());
        }
        entered.check(self.order_after_handle(&entered, other.handle()))
    }

    /// The same for a stream by its handle, which is alive and of this context. Its context is
    /// current.
    pub(crate) fn order_after_handle(
        &self,
        entered: &Entered<'_>,
        other: CUstream,
    ) -> result::Result {
        let temporary = event::create(flags::EVENT_DISABLE_TIMING)?;
        // SAFETY: event and streams are alive and of the current context.
        let ordered = unsafe {
            event::record(temporary, other)
                .and_then(|()| stream::wait_event(self.handle(), temporary))
        };
        // SAFETY: created above, and nobody else knows it. The driver keeps what is left to wait for.
        let destroyed = unsafe { stream_list::destroy_event(self.state(), temporary) };
        entered.note_if_broken(destroyed);
        ordered.and(destroyed)
    }

    /// Work enqueued from now on waits for the event, which is alive and of this context.
    pub(crate) fn wait_for(&self, operation: &'static str, event: CUevent) -> Result<()> {
        let entered = self.state().enter(operation)?;
        // SAFETY: both are alive and of the current context.
        entered.check(unsafe { stream::wait_event(self.handle(), event) })
    }
}
