//! How a pool identifies a stream: by a number that is never reused, and by its handle.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cuguard_driver::sys::CUstream;
use cuguard_sync::process;

use crate::core::shared::context_state::ContextState;

/// A stream as a pool names it. Valid until the pools of its context know that the stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StreamId {
    /// Unique for the life of the process: the driver reuses handles.
    pub(crate) number: u64,
    pub(crate) handle: CUstream,
}

/// Tells the pools of the context that a stream ends, when it is dropped: before the stream is destroyed or released.
#[derive(Debug)]
pub(crate) struct StreamIdGuard {
    pub(crate) id: StreamId,
    state: Arc<ContextState>,
}

impl StreamIdGuard {
    pub(crate) fn new(state: &Arc<ContextState>, handle: CUstream) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self {
            id: StreamId {
                number: NEXT.fetch_add(1, Ordering::Relaxed),
                handle,
            },
            state: state.clone(),
        }
    }
}

impl Drop for StreamIdGuard {
    fn drop(&mut self) {
        // In a forked child a thread that does not exist may hold a lock; and at exit nothing is reused.
        if process::is_exiting() {
            return;
        }
        self.state
            .pools_of_cuguard()
            .stream_ends(&self.state, self.id);
    }
}
