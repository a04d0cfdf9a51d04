//! The state of a stream that its guard and stream-ordered memory share: memory is freed on its stream, so the stream
//! lives as long as the last of them.

use std::sync::Arc;

use cuguard_driver::result::{self, context, event, stream};
use cuguard_driver::sys::{CUevent, CUresult, CUstream, flags};
use cuguard_registry::{Key, ResourceKind};

use crate::core::owned::ownership::{OwnedResource, StreamState};
use crate::core::owned::stream_homes::Homes;
use crate::core::pools::stream_id::{StreamId, StreamIdGuard};
use crate::core::pools::virtual_pool::VirtualPool;
use crate::core::release::listed_handle::{self, ListedHandle};
use crate::core::shared::context_state::{ContextState, Entered};
use crate::core::shared::free_progress::FreeProgress;
use crate::error::Result;

impl StreamState {
    pub(crate) fn new(listed: ListedHandle, owned: OwnedResource) -> Self {
        let handle = CUstream(owned.address() as usize);
        let pool_of_context = listed.state.pools_of_cuguard().of_context().cloned();
        Self {
            id: StreamIdGuard::new(&listed.state, handle),
            listed,
            homes: Homes::new(),
            pool_of_context,
            owned,
        }
    }

    /// The stream as pools know it.
    #[inline]
    pub(crate) fn id(&self) -> StreamId {
        self.id.id
    }

    /// The pool that all buffers of the context come from. On the hot path of every allocation from it.
    #[inline]
    pub(crate) fn pool_of_context(&self) -> Option<&Arc<VirtualPool>> {
        self.pool_of_context.as_ref()
    }

    /// The homes of blocks of pools.
    pub(crate) fn homes(&self) -> &Arc<Homes> {
        &self.homes
    }

    /// Destroys the stream and returns the driver's error.
    #[track_caller]
    pub(crate) fn close(self, operation: &'static str) -> Result<()> {
        drop(self.id);
        drop(self.listed);
        self.owned.close(operation)
    }

    /// Releases ownership and returns the handle.
    pub(crate) fn into_raw(self) -> CUstream {
        drop(self.id);
        drop(self.listed);
        CUstream(self.owned.into_raw() as usize)
    }

    #[inline]
    pub(crate) fn handle(&self) -> CUstream {
        CUstream(self.owned.address() as usize)
    }

    /// Whether this is a default stream, whose handle means that of the *current* context: calls need this stream's
    /// context to be current, those too which otherwise do not.
    #[inline]
    pub(crate) fn is_default(&self) -> bool {
        self.owned.address() <= CUstream::PER_THREAD.0 as u64
    }

    /// Whether this is the per-thread default stream: another stream on every thread.
    #[inline]
    pub(crate) fn is_per_thread(&self) -> bool {
        self.owned.address() == CUstream::PER_THREAD.0 as u64
    }

    /// Whether the stream has done its work, where its context cannot be made current; or the error.
    ///
    /// For a default stream the query would be of the current context's. That the context cannot be made current is no
    /// statement about its work, but that it does not exist is one: until then nothing is known.
    pub(crate) fn query_elsewhere(&self) -> std::result::Result<bool, CUresult> {
        if self.is_default() {
            // SAFETY: the handle is of a context. Other code may have destroyed it.
            return match unsafe { context::api_version(self.state().context) } {
                Ok(_) => Err(CUresult::UNKNOWN),
                Err(error) => Err(error.code),
            };
        }
        // SAFETY: the stream is alive.
        unsafe { stream::query(self.handle()) }.map_err(|error| error.code)
    }

    /// The legacy default stream of the same context.
    pub(crate) fn default_of_context(&self) -> Arc<Self> {
        let key = Key::new(ResourceKind::Stream, CUstream::LEGACY.0 as u64);
        let listed = ListedHandle::new(self.state(), |state| &state.streams, key);
        let owned = OwnedResource::borrowed(self.owned.owner().clone(), key);
        let stream = Arc::new(Self::new(listed, owned));
        // It has no guard that would empty the list.
        stream.homes.end();
        stream
    }

    /// Not through `owned`, which would have to match on its owner: this is on the hot path of every stream-ordered
    /// allocation.
    #[inline]
    pub(crate) fn state(&self) -> &Arc<ContextState> {
        &self.listed.state
    }

    /// The frees on this stream, and which of them have been waited for.
    #[inline]
    pub(crate) fn progress(&self) -> &Arc<FreeProgress> {
        &self.listed.progress
    }

    /// Orders work enqueued here from now on after all work enqueued so far on `other`, a stream of the same context.
    /// Does not wait. Enters the gate.
    pub(crate) fn order_after(&self, operation: &'static str, other: &StreamState) -> Result<()> {
        let entered = self.state().enter(operation)?;
        if self.handle() == other.handle() {
            return Ok(());
        }
        entered.check(self.order_after_handle(&entered, other.handle()))
    }

    /// The same for the handle of a live stream of this context, which is current.
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
        // SAFETY: created above; no other reference exists. The driver keeps what waits for it.
        let destroyed = unsafe { listed_handle::destroy_event(self.state(), temporary) };
        entered.note_if_broken(destroyed);
        ordered.and(destroyed)
    }

    /// As [`order_after`](Self::order_after), for a stream of another context, perhaps on another device.
    pub(crate) fn order_after_peer(
        &self,
        operation: &'static str,
        other: &StreamState,
    ) -> Result<()> {
        let of_other = other.state().enter(operation)?;
        let temporary = of_other.check(event::create(flags::EVENT_DISABLE_TIMING))?;
        // SAFETY: both are alive and of the current context.
        let recorded = of_other.check(unsafe { event::record(temporary, other.handle()) });
        let ordered = recorded.and_then(|()| self.wait_for(operation, temporary));
        // SAFETY: created above; no other reference exists. The driver keeps what waits for it.
        let destroyed = unsafe { listed_handle::destroy_event(other.state(), temporary) };
        ordered.and(of_other.check(destroyed))
    }

    /// Work enqueued from now on waits for the event, which is alive, and of this context or of another.
    pub(crate) fn wait_for(&self, operation: &'static str, event: CUevent) -> Result<()> {
        let entered = self.state().enter(operation)?;
        // SAFETY: both are alive, and the stream is of the current context. The driver accepts events of other contexts.
        entered.check(unsafe { stream::wait_event(self.handle(), event) })
    }
}
