//! Older versions of functions whose signature stayed and whose behaviour changed.

use cuguard_sys::{CUdevice, CUresult};

use super::{cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxSetFlags_v2};
use crate::result::{DriverResult, check};
use crate::state::lock;

/// Succeeds where nothing is retained.
pub unsafe fn cuDevicePrimaryCtxRelease(dev: CUdevice) -> DriverResult {
    // SAFETY: as the caller guarantees.
    match unsafe { cuDevicePrimaryCtxRelease_v2(dev) } {
        Err(CUresult::INVALID_CONTEXT) => Ok(()),
        other => other,
    }
}

/// Does not change the flags of an active context.
pub unsafe fn cuDevicePrimaryCtxSetFlags(dev: CUdevice, flags: u32) -> DriverResult {
    let state = lock();
    let primary = state.device(state.check_device(dev)?).primary;
    let active = state.check_alive(primary).is_ok();
    check(!active, CUresult::PRIMARY_CONTEXT_ACTIVE)?;
    drop(state);
    // SAFETY: as the caller guarantees.
    unsafe { cuDevicePrimaryCtxSetFlags_v2(dev, flags) }
}
