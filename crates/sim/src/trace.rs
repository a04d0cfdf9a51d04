//! `CUGUARD_SIM=trace`: names the functions that fail because the simulation does not have them, and, as with
//! `kernels=skip`, what is wrong with a launch.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use cuguard_sys::{CUresult, NAMES};

use crate::functions::Function;
use crate::process::lock_unless_forked;
use crate::result::DriverResult;
use crate::stderr;

static ON: AtomicBool = AtomicBool::new(false);
/// Whether reasons are printed.
static REASONS: AtomicBool = AtomicBool::new(false);
/// How many reasons are printed at most.
const MAX_REASONS: usize = 1000;

thread_local! {
    /// Whether the call of this thread fails for want of the simulation, and not as a real driver does.
    static NOT_SIMULATED: Cell<bool> = const { Cell::new(false) };
    /// Why the call of this thread fails, in words, if that is known.
    static REASON: Cell<Option<String>> = const { Cell::new(None) };
}

/// Switches the trace on or off, and the reasons of failures. Called at the start, with the configuration.
pub(crate) fn set(on: bool, reasons: bool) {
    ON.store(on, Ordering::Relaxed);
    REASONS.store(reasons, Ordering::Relaxed);
}

/// Fails with `code` unless a condition holds, and keeps the reason to print it.
pub(crate) fn require(holds: bool, code: CUresult, why: impl FnOnce() -> String) -> DriverResult {
    if holds {
        return Ok(());
    }
    if REASONS.load(Ordering::Relaxed) {
        // Fails at the end of the thread, when there is no place for it any more.
        let _ = REASON.try_with(|reason| reason.set(Some(why())));
    }
    Err(code)
}

/// Prints why a call failed, once for each reason.
fn print_reason(function: Function) {
    static PRINTED: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());
    let Ok(Some(reason)) = REASON.try_with(Cell::take) else {
        return;
    };
    let line = format!("{}: {reason}", function.name());
    if let Some(mut printed) = lock_unless_forked(&PRINTED)
        && printed.len() < MAX_REASONS
        && printed.insert(line.clone())
    {
        stderr::print_line(&line);
    }
}

/// The error of a call that asks for what is not simulated. Where a real driver does not support it
/// either, the error is `CUDA_ERROR_NOT_SUPPORTED` itself.
pub(crate) fn not_simulated() -> CUresult {
    NOT_SIMULATED.set(true);
    CUresult::NOT_SUPPORTED
}

/// Prints that a call failed with [`not_simulated`], once for each function, or for another reason that is known.
pub(crate) fn failed(function: Function) {
    print_reason(function);
    if !NOT_SIMULATED.take() || !ON.load(Ordering::Relaxed) {
        return;
    }
    static PRINTED: [AtomicBool; NAMES.len()] = [const { AtomicBool::new(false) }; NAMES.len()];
    if PRINTED[function as usize].swap(true, Ordering::Relaxed) {
        return;
    }
    let why = match function.is_simulated() {
        true if function.launches_kernel() => {
            "launches kernels of PTX, and this one is compiled (CUGUARD_SIM=kernels=skip checks and skips launches)"
        }
        true => "does not support these arguments",
        false => "is not simulated",
    };
    stderr::print_line(&format!(
        "{} {why}: CUDA_ERROR_NOT_SUPPORTED",
        function.name()
    ));
}
