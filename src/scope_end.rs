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

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use cuguard_driver::api;
use cuguard_driver::sys::{CUresult, CUstream};

use crate::context_state::{Entered, log_error};
use crate::error::Result;
use crate::exit;
use crate::stream::StreamCore;

const OPERATION: &str = "Stream::scope";

/// Whether a code says that nothing works in a context any more, and so nothing is under way in it.
pub(crate) fn is_dead(code: CUresult) -> bool {
    code.breaks_context()
        || matches!(
            code,
            // Somebody destroyed the context, or reset the device.
            CUresult::CONTEXT_IS_DESTROYED
                | CUresult::INVALID_CONTEXT
                | CUresult::INVALID_HANDLE
                // The driver has ended, or this is a fork.
                | CUresult::DEINITIALIZED
                | CUresult::NOT_INITIALIZED
                // What is answered where the device itself is gone.
                | CUresult::UNKNOWN
        )
}

/// How often the driver refused.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    /// So many times in a row nothing worked any more.
    dead: u32,
    since: Option<Instant>,
}

impl Refusals {
    /// How often nothing must work before that is taken for an answer.
    pub(crate) const ENOUGH: u32 = 10;
    pub(crate) const PAUSE: Duration = Duration::from_millis(1);
    /// How long a driver may refuse for other reasons.
    const PATIENCE: Duration = Duration::from_secs(20);

    /// Takes what several calls answered, none of them success. Whether the context is dead; if
    /// not, pauses, so that the caller can ask again.
    fn are_final(&mut self, operation: &str, codes: &[CUresult]) -> bool {
        let since = *self.since.get_or_insert_with(Instant::now);
        if codes.contains(&CUresult::NOT_READY) {
            // It works, and says so.
            *self = Self::default();
        } else if codes.iter().all(|code| is_dead(*code)) {
            self.dead += 1;
        } else {
            self.dead = 0;
            if since.elapsed() > Self::PATIENCE {
                give_up(
                    operation,
                    "the driver refuses to say whether the device has done its work",
                );
            }
        }
        if self.dead >= Self::ENOUGH {
            return true;
        }
        std::thread::sleep(Self::PAUSE);
        false
    }
}

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
                    let idle = unsafe { api::cuStreamQuery(self.core.handle()) };
                    let refused = error.code().unwrap_or(CUresult::UNKNOWN);
                    answer = answer.and(Err(error));
                    if idle.is_success() || refusals.are_final(OPERATION, &[refused, idle]) {
                        break;
                    }
                }
                // The child has a copy of the memory, which nothing writes to.
                Err(error) if exit::is_forked() => {
                    answer = answer.and(Err(error));
                    break;
                }
                Err(_) if exit::is_exiting() => stop_here(OPERATION),
                Err(_) => {
                    state.wait_for_teardown();
                    if !state.settled.load(Ordering::Acquire) {
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

/// The process is exiting, on another thread. That ends this one too, unless it waits for it, as
/// exit handlers that join threads do: then nobody would ever go on.
fn stop_here(operation: &str) -> ! {
    const PATIENCE: Duration = Duration::from_secs(30);
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        std::thread::sleep(PATIENCE);
    }
    give_up(operation, "the process has been ending for long")
}

/// Nobody can tell whether the device still writes to memory that is about to be used for other
/// things.
fn give_up(operation: &str, why: &str) -> ! {
    let _ = writeln!(
        std::io::stderr(),
        "cuguard: {operation}: {why}. The process ends here, as the device may still write to its \
         memory."
    );
    std::process::abort()
}

/// Waits for a stream whatever it takes, and answers what the driver refused first on the way.
pub(crate) fn settle(entered: &Entered<'_>, stream: CUstream) -> Result<()> {
    let mut answer = Ok(());
    let mut refusals = Refusals::default();
    loop {
        if exit::is_exiting() && !exit::is_forked() {
            stop_here(entered.operation());
        }
        // SAFETY: the stream is alive.
        let stream_code = unsafe { api::cuStreamSynchronize(stream) };
        answer = answer.and(entered.check("cuStreamSynchronize", stream_code));
        if stream_code.is_success() {
            break;
        }
        // SAFETY: the context is current.
        let context_code = unsafe { api::cuCtxSynchronize() };
        if context_code.is_success() {
            break;
        }
        // SAFETY: the stream is alive.
        let query_code = unsafe { api::cuStreamQuery(stream) };
        if query_code.is_success()
            || refusals.are_final(
                entered.operation(),
                &[stream_code, context_code, query_code],
            )
        {
            break;
        }
    }
    answer
}

impl Drop for End<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.wait() {
            log_error(&error);
        }
    }
}
