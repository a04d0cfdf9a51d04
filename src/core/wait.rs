//! Waiting for a stream whatever the driver returns: see `scope/end.rs` for why it must not give up.

use std::io::Write as _;
use std::time::{Duration, Instant};

use cuguard_driver::result::{context, stream};
use cuguard_driver::sys::{CUresult, CUstream};
use cuguard_sync::process;

use super::context_state::Entered;
use crate::error::Result;

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
    pub(crate) fn are_final(&mut self, operation: &str, codes: &[CUresult]) -> bool {
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

/// The process is exiting, on another thread. That ends this one too, unless it waits for it, as
/// exit handlers that join threads do: then nobody would ever go on.
pub(crate) fn stop_here(operation: &str) -> ! {
    const PATIENCE: Duration = Duration::from_secs(30);
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        std::thread::sleep(PATIENCE);
    }
    give_up(operation, "the process has been ending for long")
}

/// Nobody can tell whether the device still writes to memory that is about to be used for other
/// things.
pub(crate) fn give_up(operation: &str, why: &str) -> ! {
    let _ = writeln!(
        std::io::stderr(),
        "cuguard: {operation}: {why}. The process ends here, as the device may still write to its \
         memory."
    );
    std::process::abort()
}

/// Waits for a stream whatever it takes, and answers what the driver refused first on the way.
pub(crate) fn settle(entered: &Entered<'_>, handle: CUstream) -> Result<()> {
    let mut answer = Ok(());
    let mut refusals = Refusals::default();
    loop {
        if process::is_exiting() && !process::is_forked() {
            stop_here(entered.operation());
        }
        // SAFETY: the stream is alive.
        let Err(of_stream) = (unsafe { stream::synchronize(handle) }) else {
            break;
        };
        answer = answer.and(entered.check(Err(of_stream)));
        let Err(of_context) = context::synchronize() else {
            break;
        };
        // SAFETY: the stream is alive.
        let of_query = match unsafe { stream::query(handle) } {
            Ok(true) => break,
            Ok(false) => CUresult::NOT_READY,
            Err(error) => error.code,
        };
        let codes = [of_stream.code, of_context.code, of_query];
        if refusals.are_final(entered.operation(), &codes) {
            break;
        }
    }
    answer
}
