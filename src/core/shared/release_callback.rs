//! A callback of the program, from its registration until it is dropped.

use std::fmt;
use std::sync::{Arc, Weak};

use cuguard_sync::process;

use crate::core::shared::callbacks::Callback;
use crate::core::shared::context_state::ContextState;

/// A registered callback that frees memory; see [`Context::release_on_oom`](crate::Context::release_on_oom). It is
/// called until this or its context is dropped.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU32, Ordering};
/// use cuguard::{Context, DeviceBuffer};
/// use cuguard::oom::ReleaseCallback;
///
/// let context = Context::builder().memory_limit(1000).build()?;
/// let calls = Arc::new(AtomicU32::new(0));
/// let counter = Arc::clone(&calls);
/// let callback: ReleaseCallback = context.release_on_oom(move |_bytes| {
///     counter.fetch_add(1, Ordering::Relaxed);
/// });
/// assert!(DeviceBuffer::<u8>::zeroed(&context, 2000).is_err());
/// drop(callback);
/// assert!(DeviceBuffer::<u8>::zeroed(&context, 2000).is_err());
/// assert_eq!(calls.load(Ordering::Relaxed), 1);
/// # Ok::<(), cuguard::Error>(())
/// ```
#[must_use = "the callback is called only as long as this is kept"]
pub struct ReleaseCallback {
    state: Weak<ContextState>,
    number: u64,
}

impl ReleaseCallback {
    pub(crate) fn register(state: &Arc<ContextState>, callback: Callback) -> Self {
        let mut number = 0;
        // In a forked child a thread that does not exist may hold the lock, and nothing is allocated.
        if !process::is_forked() {
            let mut list = state.callbacks.lock();
            list.last += 1;
            number = list.last;
            list.all.push((number, callback));
        }
        Self {
            state: Arc::downgrade(state),
            number,
        }
    }
}

impl fmt::Debug for ReleaseCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "release callback {}", self.number)
    }
}

impl Drop for ReleaseCallback {
    fn drop(&mut self) {
        let Some(state) = self.state.upgrade() else {
            return;
        };
        // In a forked child a thread that does not exist may hold the lock.
        if process::is_forked() {
            return;
        }
        let mut list = state.callbacks.lock();
        let mut all = list.all.iter();
        let index = all.position(|(number, _)| *number == self.number);
        let callback = index.map(|index| list.all.remove(index));
        // Without the lock: the drop is the program's code.
        drop(list);
        drop(callback);
    }
}
