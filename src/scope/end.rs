//! The end of a scope: it is reached only when the stream has nothing of the scope's left to do.
//!
//! This is what makes [`Stream::scope`](crate::Stream::scope) sound, so it must not give up on a
//! device that is still working:
//!
//! - The stream is waited for. If the driver refuses that, the whole context is; if it refuses that
//!   too, the stream is asked whether it is idle until it says so. Each of these shows that the
//!   work is done, whatever went wrong before.
//! - If the driver answers all of them, again and again, that the context is of no use any more,
//!   nothing is in flight: that is what a fault on the device leaves behind, or somebody who
//!   destroyed the context; the driver has stopped all of its work for good.
//! - As long as it refuses with any other error, it is asked again. If that goes on, nobody can tell
//!   whether the device still writes, and the process is aborted: to go on would let the device
//!   write into memory that is used for other things.
//! - If the context was closed within the scope, teardown has waited for the device. Where it could
//!   not (the driver would not even let it try, and other code keeps the context alive) the process
//!   is aborted too.
//! - In a forked child nothing is in flight: it has a copy of the memory.
//! - If the process is exiting, the driver must not be called, so nobody can tell whether the work
//!   is done. The thread stops here: the exit, which is under way on another thread, ends it; if
//!   that takes half a minute, as the exit waits for this thread, the process is aborted.
//!   (Under way on another, as work that is in flight was given by this one before the exit began,
//!   and whoever calls `exit` does not come back.)

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cuguard_driver::result::stream;
use cuguard_driver::sys::CUresult;

use crate::core::wait::{Refusals, give_up, settle, stop_here};
use crate::core::{StreamState, log_error};
use crate::error::Result;
use cuguard_sync::process;

const OPERATION: &str = "Stream::scope";

/// Waits when it goes, also by a panic.
#[derive(Debug)]
pub(crate) struct End<'a> {
    core: &'a Arc<StreamState>,
    in_flight: AtomicBool,
}

impl<'a> End<'a> {
    pub(crate) fn new(core: &'a Arc<StreamState>) -> Self {
        Self {
            core,
            in_flight: AtomicBool::new(false),
        }
    }

    /// Work is about to be given to the stream.
    pub(crate) fn expect_work(&self) {
        self.in_flight.store(true, Ordering::Release);
    }

    /// Waits, and answers what the driver refused first on the way.
    pub(crate) fn reach(self) -> Result<()> {
        self.wait()
    }

    /// Waits once; later calls find it done.
    fn wait(&self) -> Result<()> {
        if !self.in_flight.load(Ordering::Acquire) {
            return Ok(());
        }
        let state = self.core.state();
        let mut answer = Ok(());
        let mut refusals = Refusals::default();
        loop {
            match state.enter_uncurrent(OPERATION) {
                Ok((entered, Ok(()))) => {
                    let stream = self.core.handle();
                    answer = answer.and(self.core.note_wait(|| settle(&entered, stream)));
                    break;
                }
                Ok((_entered, Err(error))) => {
                    // A stream can be asked also where its context cannot be made current.
                    // SAFETY: the stream is alive.
                    let query = unsafe { stream::query(self.core.handle()) };
                    answer = answer.and(Err(state.error(OPERATION, error, None)));
                    let idle = match query {
                        Ok(true) => break,
                        Ok(false) => CUresult::NOT_READY,
                        Err(error) => error.code,
                    };
                    if refusals.are_final(OPERATION, &[error.code, idle]) {
                        break;
                    }
                }
                // The child has a copy of the memory, which nothing writes to.
                Err(error) if process::is_forked() => {
                    answer = answer.and(Err(error));
                    break;
                }
                Err(_) if process::is_exiting() => stop_here(OPERATION),
                Err(_) => {
                    state.wait_for_teardown();
                    if !state.device_idle.load(Ordering::Acquire) {
                        give_up(
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
        answer
    }
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.wait() {
            log_error(&error);
        }
    }
}
