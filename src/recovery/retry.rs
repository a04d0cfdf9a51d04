//! The recovery steps before an allocation fails.

use std::cell::Cell;
use std::sync::Arc;

use cuguard_registry::ResourceKind;
use cuguard_report::oom::{RecoveryResult, RecoveryStep};

use super::{compaction, frees, gather, other_processes, pools, probe};
use crate::core::lock::FlagGuard;
use crate::core::{ContextState, Failed, Refused, Request, deferred};
use crate::error::{Error, Result};

/// Allocates, with the recovery steps where the first attempt fails for lack of memory. `attempt` calls the driver
/// once; it enters the gate of the context, and has left it if it fails.
#[inline(always)]
pub(crate) fn with_recovery<T>(
    state: &Arc<ContextState>,
    request: &Request,
    attempt: impl Fn() -> Result<T, Failed>,
) -> Result<T> {
    // The first attempt is on the hot path of every allocation.
    match attempt() {
        Ok(allocated) => Ok(allocated),
        Err(failed) => retry(failed, state, request, &attempt),
    }
}

/// Runs the recovery steps after an attempt that failed for lack of memory; see [`with_recovery`].
#[cold]
#[inline(never)]
pub(crate) fn retry<T>(
    failed: Failed,
    state: &Arc<ContextState>,
    request: &Request,
    attempt: &dyn Fn() -> Result<T, Failed>,
) -> Result<T> {
    let mut refused = match failed {
        Failed::Other(error) => return Err(*error),
        Failed::OutOfMemory(refused) => refused,
    };
    // Deferred frees may be all that is needed.
    if deferred::run() {
        match attempt() {
            Err(Failed::OutOfMemory(again)) => refused = again,
            Err(Failed::Other(error)) => return Err(*error),
            Ok(resource) => return Ok(resource),
        }
    }
    let mut allocated = None;
    let mut attempt = || attempt().map(|resource| allocated = Some(resource));
    run_steps(state, request, refused, &mut attempt)?;
    Ok(allocated.unwrap_or_else(|| unreachable!("the last attempt succeeded")))
}

thread_local! {
    /// This thread runs the recovery steps: a callback that allocates does not run them again.
    static RECOVERING: Cell<bool> = const { Cell::new(false) };
    /// Set by [`without_recovery`].
    static DISABLED: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`. Its allocations on this thread fail at once and with little diagnosis: for a caller that then tries
/// less.
pub(crate) fn without_recovery<T>(work: impl FnOnce() -> T) -> T {
    let _disabled = FlagGuard::set(&DISABLED);
    work()
}

fn run_steps(
    state: &Arc<ContextState>,
    request: &Request,
    mut refused: Refused,
    attempt: &mut dyn FnMut() -> Result<(), Failed>,
) -> Result<()> {
    if DISABLED.get() {
        return Err(gather::brief_error(state, request, &refused));
    }
    let recovering = FlagGuard::set(&RECOVERING);
    let policy = &state.oom_policy;
    let steps = [
        (RecoveryStep::Compact, policy.compact),
        (RecoveryStep::Callbacks, policy.callbacks),
        (RecoveryStep::Wait, policy.wait),
        (RecoveryStep::Trim, policy.trim),
        (RecoveryStep::OtherProcesses, policy.other_processes),
    ];
    let mut results = Vec::new();
    for (step, allowed) in steps.into_iter().filter(|_| !recovering.was_set) {
        if step == RecoveryStep::Compact && !compaction::any(state) {
            continue;
        }
        let mut result = RecoveryResult {
            step,
            allowed,
            tried: false,
            freed: 0,
        };
        // Pending frees and unused memory of pools do not count against the budget; what other pools hold does not count
        // against the limit of a pool.
        let matters = match refused {
            Refused::Memory(_) | Refused::NotLaunched => true,
            Refused::Limit { .. } => step == RecoveryStep::Callbacks,
            Refused::PoolLimit { .. } => {
                // Its blocks may wait for their streams.
                !matches!(step, RecoveryStep::Trim | RecoveryStep::OtherProcesses)
            }
        };
        if allowed && matters {
            let before = probe::memory(state);
            let mut outcome = None;
            let pool_limit = match refused {
                Refused::PoolLimit { limit, .. } => Some(limit),
                _ => None,
            };
            let mut try_again = || {
                let attempted = if state.callbacks.are_closed() {
                    // Teardown has waited for the callback, and takes its snapshot now.
                    let operation = request.operation;
                    Err(Error::ContextClosed { operation }.into())
                } else {
                    attempt()
                };
                match attempted {
                    Err(Failed::OutOfMemory(again)) => refused = again,
                    done => outcome = Some(done),
                }
                outcome.is_some()
            };
            result.tried = match step {
                RecoveryStep::Compact => {
                    let bytes = request.bytes as u64;
                    let most = policy.wait_at_most;
                    compaction::release(state, pool_limit, bytes, most, &mut try_again)
                }
                RecoveryStep::Callbacks => {
                    // An unknown size: as much as they can free.
                    let bytes = match request.bytes {
                        0 => u64::MAX,
                        bytes => bytes as u64,
                    };
                    let most = policy.wait_at_most;
                    state.callbacks.call_each(bytes, most, &mut try_again)
                }
                RecoveryStep::Wait => {
                    let waited = frees::wait_for_frees(state, request, pool_limit, &mut try_again);
                    // Another thread may have waited for the frees that were pending, or freed memory, since the last
                    // attempt. What a pool of cuguard has free is not known here.
                    let is_pooled = request.kind == Some(ResourceKind::Pooled);
                    if !waited && (is_pooled || fits_now(state, request)) {
                        try_again();
                    }
                    waited
                }
                RecoveryStep::Trim => {
                    let any = pools::trim(state);
                    if any {
                        try_again();
                    }
                    any
                }
                RecoveryStep::OtherProcesses => {
                    let any = other_processes::release(state);
                    if any {
                        try_again();
                    }
                    any
                }
            };
            match outcome {
                Some(Ok(())) => return Ok(()),
                Some(Err(Failed::Other(error))) => return Err(*error),
                _ => {}
            }
            if let (Some((before, _)), Some((after, _))) = (before, probe::memory(state)) {
                result.freed = after.saturating_sub(before);
            }
        }
        // Mostly there is no such process: the step is shown where one replied.
        if result.tried || step != RecoveryStep::OtherProcesses {
            results.push(result);
        }
    }
    Err(gather::error(state, request, &refused, results))
}

/// Whether the driver, which refused device memory, has enough free now.
fn fits_now(state: &ContextState, request: &Request) -> bool {
    let is_of_device = matches!(
        request.kind,
        Some(ResourceKind::Device | ResourceKind::StreamOrdered | ResourceKind::GraphMemory)
    );
    is_of_device && probe::memory(state).is_some_and(|(free, _)| free >= request.bytes as u64)
}
