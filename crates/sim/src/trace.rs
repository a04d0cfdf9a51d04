//! `CUGUARD_SIM=trace`: names the functions that fail because the simulation does not have them.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

use cuguard_sys::{CUresult, NAMES};

use crate::functions::Function;
use crate::stderr;

static ON: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether the call of this thread fails for want of the simulation, and not as a real driver does.
    static NOT_SIMULATED: Cell<bool> = const { Cell::new(false) };
}

/// Switches the trace on or off. Called at the start, with the configuration.
pub(crate) fn set(on: bool) {
    ON.store(on, Ordering::Relaxed);
}

/// The error of a call that asks for what is not simulated. Where a real driver does not support it
/// either, the error is `CUDA_ERROR_NOT_SUPPORTED` itself.
pub(crate) fn not_simulated() -> CUresult {
    NOT_SIMULATED.set(true);
    CUresult::NOT_SUPPORTED
}

/// Prints that a call failed with [`not_simulated`], once for each function.
pub(crate) fn failed(function: Function) {
    if !NOT_SIMULATED.take() || !ON.load(Ordering::Relaxed) {
        return;
    }
    static PRINTED: [AtomicBool; NAMES.len()] = [const { AtomicBool::new(false) }; NAMES.len()];
    if PRINTED[function as usize].swap(true, Ordering::Relaxed) {
        return;
    }
    let why = match function.is_simulated() {
        true if function.launches_kernel() => {
            "launches no kernel (CUGUARD_SIM=kernels=skip checks and skips launches)"
        }
        true => "does not support these arguments",
        false => "is not simulated",
    };
    stderr::print_line(&format!(
        "{} {why}: CUDA_ERROR_NOT_SUPPORTED",
        function.name()
    ));
}
