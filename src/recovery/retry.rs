//! The recovery steps: what is tried before an allocation fails for want of memory.

use std::cell::Cell;
use std::sync::Arc;

use cuguard_report::oom::{RecoveryResult, RecoveryStep};

use super::{frees, gather, pools};
use crate::core::{ContextState, Failed, Refused, Request, deferred};
use crate::error::{Error, Result};

/// Asks the driver, and runs the recovery steps where there is too little memory. `ask` is as for [`retry`], and is
/// the first attempt too.
#[inline]
pub(crate) fn satisfy<T>(
    state: &Arc<ContextState>,
    request: &Request,
    ask: impl Fn() -> Result<T, Failed>,
) -> Result<T> {
    ask().or_else(|failed| retry(failed, state, request, &ask))
}

/// After an attempt that failed: for want of memory, runs the recovery steps. `ask` is another attempt, which asks
/// the driver once; it enters the gate of the context and has left it when it returns. (The first attempt is made by
/// the caller: it is on the hot path of every allocation.)
#[cold]
#[inline(never)]
pub(crate) fn retry<T>(
    failed: Failed,
    state: &Arc<ContextState>,
    request: &Request,
    ask: &dyn Fn() -> Result<T, Failed>,
) -> Result<T> {
    let mut refused = match failed {
        Failed::Other(error) => return Err(error),
        Failed::Short(refused) => refused,
    };
    // What was dropped in host functions may be all that is needed.
    if deferred::run() {
        match ask() {
            Err(Failed::Short(again)) => refused = again,
            Err(Failed::Other(error)) => return Err(error),
            Ok(resource) => return Ok(resource),
        }
    }
    let mut allocated = None;
    let mut attempt = || ask().map(|resource| allocated = Some(resource));
    run_steps(state, request, refused, &mut attempt)?;
    Ok(allocated.unwrap_or_else(|| unreachable!("the last attempt succeeded")))
}

/// This thread runs the recovery steps: a callback that allocates does not run them again.
struct Recovering;

thread_local! {
    static RECOVERING: Cell<bool> = const { Cell::new(false) };
    static GUESSING: Cell<bool> = const { Cell::new(false) };
}

/// Lets allocations of this thread fail at once, and with little more than what was asked for: for
/// one that tries how much there is, and asks for less where there is not so much.
pub(crate) fn guessing<T>(work: impl FnOnce() -> T) -> T {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            GUESSING.set(self.0);
        }
    }
    let _before = Before(GUESSING.replace(true));
    work()
}

impl Recovering {
    /// `None` within another one. Not by `then_some`: that builds, and drops, a value also where it
    /// is not wanted, and the drop would end the outer one.
    fn begin() -> Option<Self> {
        if RECOVERING.replace(true) {
            return None;
        }
        Some(Self)
    }
}

impl Drop for Recovering {
    fn drop(&mut self) {
        RECOVERING.set(false);
    }
}

fn run_steps(
    state: &Arc<ContextState>,
    request: &Request,
    mut refused: Refused,
    ask: &mut dyn FnMut() -> Result<(), Failed>,
) -> Result<()> {
    if GUESSING.get() {
        return Err(gather::bare(state, request, &refused));
    }
    let recovering = Recovering::begin();
    let mut attempts = Vec::new();
    if recovering.is_some() {
        for step in [
            RecoveryStep::Callbacks,
            RecoveryStep::Wait,
            RecoveryStep::Trim,
        ] {
            let mut attempt = RecoveryResult {
                step,
                allowed: is_allowed(state, step),
                tried: false,
                freed: 0,
            };
            // Of the budget, frees that wait and unused memory of pools take nothing.
            let matters = step == RecoveryStep::Callbacks || matches!(refused, Refused::Memory(_));
            if attempt.allowed && matters {
                let before = gather::memory(state);
                let mut outcome = None;
                let mut ask_again = || {
                    let answer = if state.callbacks.are_closed() {
                        // Teardown has waited for the callback, and takes down what is alive now.
                        let operation = request.operation;
                        Err(Error::ContextClosed { operation }.into())
                    } else {
                        ask()
                    };
                    match answer {
                        Err(Failed::Short(again)) => refused = again,
                        done => outcome = Some(done),
                    }
                    outcome.is_some()
                };
                attempt.tried = match step {
                    RecoveryStep::Callbacks => {
                        // Where nobody knows, as much as they can.
                        let bytes = match request.bytes {
                            0 => u64::MAX,
                            bytes => bytes as u64,
                        };
                        state.callbacks.call_each(bytes, &mut ask_again)
                    }
                    RecoveryStep::Wait => {
                        let most = state.oom_policy.wait_at_most;
                        frees::wait_for_frees(state, most, &mut ask_again)
                    }
                    RecoveryStep::Trim => {
                        let any = pools::trim(state);
                        if any {
                            ask_again();
                        }
                        any
                    }
                };
                match outcome {
                    Some(Ok(())) => return Ok(()),
                    Some(Err(Failed::Other(error))) => return Err(error),
                    _ => {}
                }
                let after = gather::memory(state);
                attempt.freed = match (before, after) {
                    (Some((before, _)), Some((after, _))) => after.saturating_sub(before),
                    _ => 0,
                };
            }
            attempts.push(attempt);
        }
    }
    Err(gather::refused(state, request, &refused, attempts))
}

fn is_allowed(state: &ContextState, step: RecoveryStep) -> bool {
    match step {
        RecoveryStep::Callbacks => state.oom_policy.callbacks,
        RecoveryStep::Wait => state.oom_policy.wait,
        RecoveryStep::Trim => state.oom_policy.trim,
    }
}
