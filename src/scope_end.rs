//! The end of a scope: it is reached only when the stream has nothing of the scope's left to do.
//!
//! This is what makes [`Stream::scope`](crate::Stream::scope) sound, so it must not give up on a
//! device that is still working:
//!
//! - The stream is waited for. If the driver refuses that, the whole context is; if it refuses that
//!   too, the stream is asked whether it is idle until it says so. Each of these shows that the
//!   work is done, whatever went wrong before.
//! - If the driver refuses all of them, again and again, nothing works in this context any more.
//!   That is what a fault on the device leaves behind: the driver has stopped all of the context's
//!   work for good and answers every call with the same error. Nothing is in flight then.
//! - If the context was closed within the scope, teardown has waited for the device.
//! - If the process is exiting, the driver must not be called, so nobody can tell whether the work
//!   is done. The thread stops here: the exit, which is under way on another thread, ends it.
//!   (Under way on another, as work that is in flight was given by this one before the exit began,
//!   and whoever calls `exit` does not come back.)

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use cuguard_driver::api;
use cuguard_driver::sys::{CUresult, CUstream};

use crate::custody::Entered;
use crate::error::{Error, Result};
use crate::exit;
use crate::stream::StreamCore;

const OPERATION: &str = "Stream::scope";
/// How often everything must be refused before the context counts as broken, with a pause each.
pub(crate) const REFUSALS: u32 = 10;
pub(crate) const PAUSE: Duration = Duration::from_millis(1);

/// Waits when it goes, also by a panic.
#[derive(Debug)]
pub(crate) struct End<'a> {
    core: &'a Arc<StreamCore>,
    in_flight: AtomicBool,
}

impl<'a> End<'a> {
    pub(crate) fn new(core: &'a Arc<StreamCore>) -> Self {
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
        let mut answer = Ok(());
        for _ in 0..REFUSALS {
            match self.core.custody().enter(OPERATION) {
                Ok(entered) => {
                    let settled = settle(&entered, self.core.handle());
                    answer = answer.and(settled);
                    break;
                }
                Err(Error::ContextClosed { .. }) if exit::is_exiting() => loop {
                    std::thread::park();
                },
                Err(Error::ContextClosed { .. }) => break,
                Err(error) => answer = answer.and(Err(error)),
            }
            std::thread::sleep(PAUSE);
        }
        self.in_flight.store(false, Ordering::Release);
        answer
    }
}

/// Waits for a stream whatever it takes, and answers what the driver refused first on the way.
pub(crate) fn settle(entered: &Entered<'_>, stream: CUstream) -> Result<()> {
    let mut answer = Ok(());
    let mut refusals = 0;
    while refusals < REFUSALS {
        // SAFETY: the stream is alive.
        let code = unsafe { api::cuStreamSynchronize(stream) };
        answer = answer.and(entered.check("cuStreamSynchronize", code));
        if code.is_success() {
            break;
        }
        // SAFETY: the context is current.
        if unsafe { api::cuCtxSynchronize() }.is_success() {
            break;
        }
        // SAFETY: the stream is alive.
        match unsafe { api::cuStreamQuery(stream) } {
            CUresult::SUCCESS => break,
            CUresult::NOT_READY => refusals = 0,
            _ => refusals += 1,
        }
        std::thread::sleep(PAUSE);
    }
    answer
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.wait() {
            log::error!("cuguard: {error}");
        }
    }
}
