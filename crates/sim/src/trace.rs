//! `CUGUARD_SIM=trace`: names the functions that fail because the simulation does not have them.

use std::sync::atomic::{AtomicBool, Ordering};

use cuguard_sys::{CUresult, NAMES};

use crate::functions::Function;
use crate::stderr;

static ON: AtomicBool = AtomicBool::new(false);

/// Switches the trace on or off. Called at the start, with the configuration.
pub(crate) fn set(on: bool) {
    ON.store(on, Ordering::Relaxed);
}

/// Prints that a call fails with `code`: once for each function, and only `CUDA_ERROR_NOT_SUPPORTED`.
pub(crate) fn failed(function: Function, code: CUresult) {
    if code != CUresult::NOT_SUPPORTED || !ON.load(Ordering::Relaxed) {
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
