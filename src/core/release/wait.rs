//! Waits for a stream and does not give up while the device may still work: see `scope/end.rs` for the rules.

use std::io::Write as _;
use std::time::{Duration, Instant};

use cuguard_driver::result::{self, context, event, stream};
use cuguard_driver::sys::{CUresult, CUstream, flags};
use cuguard_sync::process;

use crate::core::release::listed_handle::destroy_event;
use crate::core::shared::context_state::Entered;
use crate::error::Result;

/// Counts the failures of one wait.
#[derive(Debug, Default)]
pub(crate) struct WaitFailures {
    /// Failures in a row that mean that the context is unusable.
    dead: u32,
    since: Option<Instant>,
}

impl WaitFailures {
    /// How many attempts fail before the error is believed.
    pub(crate) const ATTEMPTS: u32 = 10;
    pub(crate) const PAUSE: Duration = Duration::from_millis(1);
    /// How long other errors are retried.
    const PATIENCE: Duration = Duration::from_secs(20);

    /// Adds the codes of one attempt, none of them success. Returns whether the context is unusable; if not, pauses
    /// before the next attempt.
    pub(crate) fn is_dead_after(&mut self, operation: &str, codes: &[CUresult]) -> bool {
        let since = *self.since.get_or_insert_with(Instant::now);
        if codes.contains(&CUresult::NOT_READY) {
            // The device works.
            *self = Self::default();
        } else if codes.iter().all(|code| code.ends_all_work()) {
            self.dead += 1;
        } else {
            self.dead = 0;
            if since.elapsed() > Self::PATIENCE {
                abort(
                    operation,
                    "the driver refuses to say whether the device has done its work",
                );
            }
        }
        if self.dead >= Self::ATTEMPTS {
            return true;
        }
        std::thread::sleep(Self::PAUSE);
        false
    }
}

/// Blocks while another thread exits the process, which ends this thread too. Aborts after half a minute: an exit
/// handler may be joining this thread.
pub(crate) fn block_until_exit(operation: &str) -> ! {
    const PATIENCE: Duration = Duration::from_secs(30);
    let begin = Instant::now();
    while begin.elapsed() < PATIENCE {
        std::thread::sleep(PATIENCE);
    }
    abort(operation, "the process has been ending for long")
}

/// Aborts the process, because the device may still write to memory that is about to be reused.
pub(crate) fn abort(operation: &str, why: &str) -> ! {
    let _ = writeln!(
        std::io::stderr(),
        "cuguard: {operation}: {why}. The process ends here, as the device may still write to its \
         memory."
    );
    std::process::abort()
}

/// Waits until a stream is idle. Returns the first error on the way, although the wait goes on after it.
pub(crate) fn wait_until_idle(entered: &Entered<'_>, handle: CUstream) -> Result<()> {
    wait_until_idle_or_dead(entered, handle).0
}

/// The same. Also returns whether the driver has said that the stream is idle, and not that the context is unusable.
pub(crate) fn wait_until_idle_or_dead(
    entered: &Entered<'_>,
    handle: CUstream,
) -> (Result<()>, bool) {
    let mut first = Ok(());
    let mut failures = WaitFailures::default();
    loop {
        if process::is_exiting() && !process::is_forked() {
            block_until_exit(entered.operation());
        }
        // SAFETY: the stream is alive.
        let Err(of_stream) = (unsafe { stream::synchronize(handle) }) else {
            return (first, true);
        };
        first = first.and(entered.check(Err(of_stream)));
        let Err(of_context) = context::synchronize() else {
            return (first, true);
        };
        // SAFETY: the stream is alive.
        let of_query = match unsafe { stream::query(handle) } {
            Ok(true) => return (first, true),
            Ok(false) => CUresult::NOT_READY,
            Err(error) => error.code,
        };
        let Err(of_event) = wait_for_event(entered, handle) else {
            return (first, true);
        };
        let codes = [of_stream.code, of_context.code, of_query, of_event.code];
        if failures.is_dead_after(entered.operation(), &codes) {
            return (first, false);
        }
    }
}

/// Waits for an event that it records in the stream: for a driver that fails to wait for the stream itself.
fn wait_for_event(entered: &Entered<'_>, handle: CUstream) -> result::Result {
    let event = event::create(flags::EVENT_DISABLE_TIMING)?;
    // SAFETY: the event was created above, in the current context, which is that of the stream.
    let waited = unsafe { event::record(event, handle).and_then(|()| event::synchronize(event)) };
    // SAFETY: as above; no other reference exists. The driver keeps what waits for it.
    let destroyed = unsafe { destroy_event(entered.state(), event) };
    waited.and(destroyed)
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::{Duration, Instant};

    use cuguard_driver::sys::CUresult;

    use super::WaitFailures;

    /// An error that the driver cannot explain does not mean that the device has stopped.
    #[test]
    fn unknown_is_not_dead() {
        let mut failures = WaitFailures::default();
        for _ in 0..2 * WaitFailures::ATTEMPTS {
            assert!(!failures.is_dead_after("a wait", &[CUresult::UNKNOWN; 4]));
        }
        for attempt in 1..=WaitFailures::ATTEMPTS {
            let is_dead = failures.is_dead_after("a wait", &[CUresult::CONTEXT_IS_DESTROYED; 4]);
            assert_eq!(is_dead, attempt == WaitFailures::ATTEMPTS);
        }
    }

    /// In a child process, which is aborted.
    #[test]
    fn a_driver_that_refuses_for_long_ends_the_process() {
        const CHILD: &str = "CUGUARD_WAIT_CHILD";
        const TEST: &str =
            "core::release::wait::tests::a_driver_that_refuses_for_long_ends_the_process";
        if std::env::var_os(CHILD).is_some() {
            let long = WaitFailures::PATIENCE + Duration::from_secs(1);
            let since = Instant::now().checked_sub(long);
            let mut failures = WaitFailures { dead: 0, since };
            failures.is_dead_after("a wait", &[CUresult::OUT_OF_MEMORY]);
            std::process::exit(0);
        }
        let program = std::env::current_exe().expect("this program has a file");
        let mut child = Command::new(program);
        child.args(["--exact", TEST, "--nocapture"]).env(CHILD, "1");
        let output = child.output().expect("a child can be started");
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{err}");
        assert!(
            err.contains("cuguard: a wait: the driver refuses to say"),
            "{err}"
        );
    }
}
