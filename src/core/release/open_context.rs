//! Keeps a context open while its `Context` or any of its guards exists.
//!
//! ```text
//!     Context ─┐
//!     guard ───┼─► OpenContext ─► ContextState ─► the driver's context
//!     guard ───┘   (counted)      (state)
//! ```
//!
//! The `Context` and every guard share one [`OpenContext`]. When the last of them is dropped, on any thread, the
//! context is torn down: the order in which a program drops a context and its resources does not matter (invariant 4).
//! [`Context::close`](crate::Context::close) tears the context down at once, and the remaining guards turn inert.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use cuguard_sync::process;

use crate::core::release::deferred::{self, Deferred};
use crate::core::shared::context_state::{ContextState, log_error};
use cuguard_registry::SnapshotReason;

/// Keeps a context open; the last one to be dropped tears it down.
pub(crate) struct OpenContext {
    state: Arc<ContextState>,
}

impl OpenContext {
    pub(crate) fn new(state: Arc<ContextState>) -> Arc<Self> {
        Arc::new(Self { state })
    }
}

impl Deref for OpenContext {
    type Target = Arc<ContextState>;

    #[inline]
    fn deref(&self) -> &Arc<ContextState> {
        &self.state
    }
}

impl fmt::Debug for OpenContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state.fmt(f)
    }
}

impl Drop for OpenContext {
    fn drop(&mut self) {
        tear_down(&self.state);
    }
}

/// Tears down a context that nothing keeps open; later, if the driver permits no call now. An error cannot be returned
/// from a drop, so it is logged.
pub(crate) fn tear_down(state: &Arc<ContextState>) {
    match state.tear_down("Context::drop", SnapshotReason::Drop) {
        Err(error) if deferred::is_not_permitted(&error) && !state.is_closed() => {
            state.note_dropped();
            deferred::push_teardown(Box::new(DeferredTeardown(state.clone())));
        }
        Err(error) if !process::is_exiting() => log_error(&error),
        _ => {}
    }
}

/// A teardown that the driver did not permit.
struct DeferredTeardown(Arc<ContextState>);

impl Deferred for DeferredTeardown {
    fn run(self: Box<Self>) {
        tear_down(&self.0);
    }

    /// The context is reported at exit.
    fn abandon(self: Box<Self>) {}
}
