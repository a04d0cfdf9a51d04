//! The end of a scope: it returns only when the stream has finished the scope's work.
//!
//! [`Stream::scope`](crate::Stream::scope) is sound because of this, so it must not give up on a device that is still
//! working:
//!
//! - It synchronizes with the stream. If that fails, with the whole context; if that fails too, it queries the stream
//!   until it is idle. Each of these shows that the work is done, whatever failed before.
//! - If all of them fail repeatedly with errors that mean an unusable context, nothing is in flight: that is the state
//!   after a fault on the device, or after other code destroyed the context; the driver has stopped all of its work.
//! - As long as they fail with any other error, they are retried. After 20 seconds the process is aborted: the
//!   device may still write, and it would write to memory that is used for other things.
//! - If the context was closed within the scope, teardown has waited for the device. Where it could not (the context
//!   cannot be made current, and other code keeps it alive), the process is aborted too.
//! - In a forked child nothing is in flight: it has a copy of the memory.
//! - If the process is exiting, the driver must not be called, so it is unknown whether the work is done. The thread
//!   blocks here: the exit, on another thread, ends it. If that takes half a minute because the exit waits for this
//!   thread, the process is aborted. (It is always another thread: this one enqueued its work before the exit began,
//!   and a thread that calls `exit` does not return.)

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use cuguard_driver::result::stream;
use cuguard_driver::sys::CUresult;

use crate::core::lock::lock;
use crate::core::wait::{WaitFailures, abort, block_until_exit, wait_until_idle};
use crate::core::{ContextState, PeerUse, StreamState, log_error};
use crate::error::Result;
use cuguard_sync::process;

const OPERATION: &str = "Stream::scope";

/// Waits for the stream on drop, also by a panic.
#[derive(Debug)]
pub(crate) struct ScopeEnd<'a> {
    core: &'a Arc<StreamState>,
    in_flight: AtomicBool,
    /// Contexts whose memory this scope uses. Dropped after the wait.
    peers: Mutex<Vec<PeerUse>>,
}

impl<'a> ScopeEnd<'a> {
    pub(crate) fn new(core: &'a Arc<StreamState>) -> Self {
        Self {
            core,
            in_flight: AtomicBool::new(false),
            peers: Mutex::default(),
        }
    }

    /// Lets the teardown of another context wait for this scope.
    pub(crate) fn keep_peer(&self, state: &Arc<ContextState>, new: impl FnOnce() -> PeerUse) {
        let mut peers = lock(&self.peers);
        if !peers.iter().any(|peer| peer.is_of(state)) {
            peers.push(new());
        }
    }

    /// Work is about to be enqueued.
    pub(crate) fn expect_work(&self) {
        self.in_flight.store(true, Ordering::Release);
    }

    /// Waits, and returns the first error on the way. A second call returns at once.
    pub(crate) fn wait(&self) -> Result<()> {
        if !self.in_flight.load(Ordering::Acquire) {
            return Ok(());
        }
        let state = self.core.state();
        let mut first = Ok(());
        let mut failures = WaitFailures::default();
        loop {
            match state.enter_any_context(OPERATION) {
                Ok((entered, Ok(()))) => {
                    let stream = self.core.handle();
                    let wait = || wait_until_idle(&entered, stream);
                    first = first.and(self.core.progress().track_wait(wait));
                    break;
                }
                Ok((_entered, Err(error))) => {
                    first = first.and(Err(state.error(OPERATION, error, None)));
                    // A stream can be queried even if its context cannot be made current, but for a default stream: that
                    // would be the one of another context.
                    // SAFETY: the stream is alive.
                    let query = match unsafe { stream::query(self.core.handle()) } {
                        _ if self.core.is_default() => error.code,
                        Ok(true) => break,
                        Ok(false) => CUresult::NOT_READY,
                        Err(error) => error.code,
                    };
                    if failures.is_dead_after(OPERATION, &[error.code, query]) {
                        break;
                    }
                }
                // Nothing writes to the child's copy of the memory.
                Err(error) if process::is_forked() => {
                    first = first.and(Err(error));
                    break;
                }
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
                    break;
                }
            }
        }
        self.in_flight.store(false, Ordering::Release);
        first
    }
}

impl Drop for ScopeEnd<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.wait() {
            log_error(&error);
        }
    }
}
