//! What keeps a context open.
//!
//! ```text
//!     Context ─┐
//!     guard ───┼─► OpenContext ─► Custody ─► the driver's context
//!     guard ───┘   (counted)      (state)
//! ```
//!
//! The `Context` and every guard share one [`OpenContext`]. When the last of them is dropped, the
//! context is torn down, on whatever thread that is: so the order in which a program drops a context
//! and what it created in it does not matter. [`Context::close`](crate::Context::close) does not
//! wait for that: it tears the context down at once, and the guards that are left turn inert.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::custody::{Custody, log_error};
use crate::deferred::{self, Deferred};
use crate::registry::Occasion;

/// Keeps a context open; the last one to be dropped tears it down.
pub(crate) struct OpenContext {
    custody: Arc<Custody>,
}

impl OpenContext {
    pub(crate) fn new(custody: Arc<Custody>) -> Arc<Self> {
        Arc::new(Self { custody })
    }
}

impl Deref for OpenContext {
    type Target = Arc<Custody>;

    #[inline]
    fn deref(&self) -> &Arc<Custody> {
        &self.custody
    }
}

impl fmt::Debug for OpenContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.custody.fmt(f)
    }
}

impl Drop for OpenContext {
    fn drop(&mut self) {
        tear_down(&self.custody);
    }
}

/// Tears down a context that nothing keeps open any more; at the next opportunity, where the driver
/// permits no call now. Nobody can be given an error here, so it is logged.
pub(crate) fn tear_down(custody: &Arc<Custody>) {
    match custody.tear_down("Context::drop", Occasion::Drop) {
        Err(error) if deferred::is_not_permitted(&error) && !custody.is_closed() => {
            custody.note_dropped();
            deferred::push(Deferred::Teardown(custody.clone()));
        }
        Err(error) if !crate::exit::is_exiting() => log_error(&error),
        _ => {}
    }
}
