//! Errors after which the driver fails every call of the process, such as a kernel's access to an illegal address.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::facts::process;

static FAILED: AtomicBool = AtomicBool::new(false);
/// The process, the function and the code. A forked child has its own errors.
static FIRST: OnceLock<(i32, &'static str, u32)> = OnceLock::new();

/// Whether every later call fails with this code too, until the process ends.
fn is_sticky(code: u32) -> bool {
    matches!(
        code,
        // ECC_UNCORRECTABLE, NVLINK_UNCORRECTABLE, CONTAINED
        214 | 220 | 721
        // ILLEGAL_ADDRESS, LAUNCH_TIMEOUT, ASSERT
        | 700 | 702 | 710
        // HARDWARE_STACK_ERROR, ILLEGAL_INSTRUCTION, MISALIGNED_ADDRESS, INVALID_ADDRESS_SPACE, INVALID_PC, LAUNCH_FAILED
        | 714..=719
    )
}

/// Notes that a function of the driver failed. The first sticky error is kept for the report: frees fail after it, so what
/// is alive then need not be a leak.
pub(crate) fn failed(function: &'static str, code: u32) {
    if is_sticky(code) && !FAILED.swap(true, Ordering::Relaxed) {
        let _ = FIRST.set((process(), function, code));
    }
}

/// The first sticky error, and the function that returned it.
pub(crate) fn failure() -> Option<(&'static str, u32)> {
    let first = FIRST.get().filter(|first| first.0 == process());
    first.map(|(_, function, code)| (*function, *code))
}

#[cfg(test)]
mod tests {
    use super::{failed, failure};

    #[test]
    fn the_first_sticky_error_is_kept() {
        failed("cuMemAlloc_v2", 2);
        failed("cuCtxDestroy_v2", 201);
        assert_eq!(failure(), None);
        failed("cuMemFree_v2", 700);
        failed("cuStreamDestroy_v2", 719);
        assert_eq!(failure(), Some(("cuMemFree_v2", 700)));
    }
}
