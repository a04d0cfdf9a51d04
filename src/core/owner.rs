//! What a resource keeps alive: its context, its stream or its pool.

use std::sync::Arc;

use super::context_state::ContextState;
use super::open_context::OpenContext;
use super::pool_home::Home;
use super::pool_state::PoolState;
use super::stream_state::StreamState;

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
    Pool(Box<(Arc<PoolState>, Arc<StreamState>)>),
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
    pub(super) fn home(&self) -> Option<&Arc<StreamState>> {
        self.parts().1
    }

    /// Both at once, for the hot path of every free.
    #[inline]
    pub(super) fn parts(&self) -> (&Arc<ContextState>, Option<&Arc<StreamState>>) {
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
