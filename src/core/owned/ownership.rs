//! The types that refer to each other and so keep each other alive. Their functions are in the files named after them.
//!
//! ```text
//!     OwnedResource ─► Owner ─┬─► OpenContext ─► ContextState
//!                             ├─► StreamState ─► OwnedResource (the stream) ─► Owner
//!                             │        └───────► VirtualPool (of the context)
//!                             ├─► DriverPoolState ─► OwnedResource (the driver's pool) ─► Owner
//!                             └─► Home ────────► StreamState, VirtualPool
//! ```

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use cuguard_pool::ThreadCache;
use cuguard_registry::Key;

use crate::core::owned::stream_homes::Homes;
use crate::core::pools::spares::Spares;
use crate::core::pools::stream_id::StreamIdGuard;
use crate::core::pools::virtual_pool::VirtualPool;
use crate::core::release::listed_handle::ListedHandle;
use crate::core::release::open_context::OpenContext;
use crate::core::shared::context_state::ContextState;
use crate::error::{Error, Result};

/// The one owner of one resource; see [`owned_resource`](crate::core::owned::owned_resource).
pub(crate) struct OwnedResource {
    /// Dropped at the end of `drop`, or moved out of there.
    pub(in crate::core) owner: ManuallyDrop<Owner>,
    pub(in crate::core) key: Key,
    pub(in crate::core) bytes: u64,
    /// A `u64`, so that the struct has no padding (see `ResourceKind` for why).
    pub(in crate::core) flags: AtomicU64,
}

/// What is to be done on drop.
pub(in crate::core) mod flags {
    /// Free it.
    pub(in crate::core) const OWNED: u64 = 0;
    /// Free it, after work that other code may have enqueued on the default stream.
    pub(in crate::core) const EXPOSED: u64 = 1;
    /// Nothing: freed, released by `into_raw`, borrowed, or never allocated.
    pub(in crate::core) const DONE: u64 = 2;
    /// With one of the first two: the guard was dropped, and the free is deferred.
    pub(in crate::core) const DEFERRED: u64 = 4;
}

/// The outcome of a free.
pub(crate) enum Released {
    /// Freed, or failed with an error that is recorded.
    Done(Result<()>),
    /// The driver permits no call now, inside a host function: nothing was done, and the resource is owned as before.
    NotPermitted(Error),
}

/// What the resource keeps alive. One reference, not several: a stream keeps its context open, and a reference count
/// that many threads change is slow.
#[derive(Clone)]
pub(crate) enum Owner {
    /// The context, which stays open for as long as the resource lives.
    Context(Arc<OpenContext>),
    /// The state of the context, for a memory pool: its buffers keep the context open. Escaped memory keeps the pool
    /// alive, but must not keep the context open.
    State(Arc<ContextState>),
    /// The home stream of stream-ordered memory: the stream that it is allocated and freed on. Uses on other streams are
    /// ordered before the free.
    Stream(Arc<StreamState>),
    /// The pool that the memory is from, and its home stream. They are dropped in this order: the stream may be the last
    /// reference that keeps the context open.
    Pool(Box<(Arc<DriverPoolState>, Arc<StreamState>)>),
    /// The pool of cuguard that the memory is from, and its home stream. No `Box`, and no counter that all threads change:
    /// a block of a pool is allocated and freed in some tens of nanoseconds.
    Pooled(Arc<Home>),
}

impl From<&Arc<OpenContext>> for Owner {
    fn from(context: &Arc<OpenContext>) -> Self {
        Self::Context(context.clone())
    }
}

impl From<&Arc<StreamState>> for Owner {
    fn from(stream: &Arc<StreamState>) -> Self {
        Self::Stream(stream.clone())
    }
}

impl Owner {
    #[inline]
    pub(crate) fn state(&self) -> &Arc<ContextState> {
        self.parts().0
    }

    /// The home stream of stream-ordered memory; `None` for all other resources.
    #[inline]
    pub(in crate::core) fn home(&self) -> Option<&Arc<StreamState>> {
        self.parts().1
    }

    /// Both at once, for the hot path of every free.
    #[inline]
    pub(in crate::core) fn parts(&self) -> (&Arc<ContextState>, Option<&Arc<StreamState>>) {
        match self {
            Self::Context(context) => (context, None),
            Self::State(state) => (state, None),
            Self::Stream(stream) => (stream.state(), Some(stream)),
            Self::Pool(both) => (both.1.state(), Some(&both.1)),
            Self::Pooled(home) => (home.state(), Some(home.stream())),
        }
    }

    /// The handle of the stream, for the registry; 0 is none.
    #[inline]
    pub(crate) fn stream(&self) -> u64 {
        self.home().map_or(0, |home| home.handle().0 as u64)
    }
}

/// A block of a pool that is recorded and that nothing owns yet. Two words, which a function returns in registers: what it
/// returns in memory is copied from there, and a copy of what was just written in smaller pieces stalls store forwarding.
pub(crate) struct NewBlock {
    pub(in crate::core) home: Arc<Home>,
    pub(in crate::core) address: u64,
}

/// The driver's stream, destroyed with the last reference.
#[derive(Debug)]
pub(crate) struct StreamState {
    /// Dropped first of all: pools record their last events in the stream.
    pub(in crate::core) id: StreamIdGuard,
    /// Dropped before the handle is destroyed.
    pub(in crate::core) listed: ListedHandle,
    /// For blocks of pools. Empty when this is dropped: each refers to it.
    pub(in crate::core) homes: Arc<Homes>,
    pub(crate) owned: OwnedResource,
    /// The pool that all buffers of the context come from. The context keeps it too, so it may be dropped after teardown.
    pub(in crate::core) pool_of_context: Option<Arc<VirtualPool>>,
}

/// The driver's pool, destroyed with the last reference.
#[derive(Debug)]
pub(crate) struct DriverPoolState {
    /// Dropped before the handle is destroyed.
    pub(in crate::core) listed: ListedHandle,
    pub(crate) owned: OwnedResource,
}

/// A pool and a stream, for the blocks of one thread.
pub(crate) struct Home {
    /// Dropped first: the stream may be the last reference that keeps the context open.
    pub(in crate::core) pool: Arc<VirtualPool>,
    pub(in crate::core) stream: Arc<StreamState>,
    /// The stream's, one load nearer.
    pub(in crate::core) state: Arc<ContextState>,
    /// Where the thread's freed blocks are. `None` where the thread has no caches.
    pub(in crate::core) cache: Option<ThreadCache>,
    /// Shared with the thread, which finds a reference to this there.
    pub(in crate::core) spares: Arc<Spares<Home>>,
}
