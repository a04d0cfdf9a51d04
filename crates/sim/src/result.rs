//! The result type of the simulated driver functions, and checks that return it.

use cuguard_sys::CUresult;

pub(crate) type DriverResult<T = ()> = Result<T, CUresult>;

/// Fails with `error` unless `condition` holds.
pub(crate) fn check(condition: bool, error: CUresult) -> DriverResult {
    if condition { Ok(()) } else { Err(error) }
}

/// Fails with `CUDA_ERROR_INVALID_VALUE` unless `condition` holds.
pub(crate) fn valid(condition: bool) -> DriverResult {
    check(condition, CUresult::INVALID_VALUE)
}
