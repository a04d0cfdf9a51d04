//! Access of a device to the memory of another. Copies between devices are in [`copy`](super::copy).

use cuguard_sys::{CUcontext, CUdevice};

use super::{Result, call, out};

/// Returns whether kernels on `device` can access memory of `peer`; `false` for a device and itself.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_DEVICE`, or any other driver error.
#[inline]
pub fn can_access(device: CUdevice, peer: CUdevice) -> Result<bool> {
    // SAFETY: the variable can be written to; the driver checks both devices.
    let can: i32 = out(|can| unsafe { call!(cuDeviceCanAccessPeer(can, device, peer)) })?;
    Ok(can != 0)
}

/// Lets kernels of the current context access the memory of `peer`, a context of another device.
///
/// # Errors
///
/// `CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED`, `CUDA_ERROR_PEER_ACCESS_UNSUPPORTED`,
/// `CUDA_ERROR_TOO_MANY_PEERS`, or any other driver error.
///
/// # Safety
///
/// `peer` is alive.
#[inline]
pub unsafe fn enable_access(peer: CUcontext) -> Result {
    // SAFETY: as the caller ensures; there are no flags.
    unsafe { call!(cuCtxEnablePeerAccess(peer, 0)) }
}

/// Ends what [`enable_access`] began.
///
/// # Errors
///
/// `CUDA_ERROR_PEER_ACCESS_NOT_ENABLED`, or any other driver error.
///
/// # Safety
///
/// `peer` is alive, and no work of the current context accesses its memory from now on.
#[inline]
pub unsafe fn disable_access(peer: CUcontext) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuCtxDisablePeerAccess(peer)) }
}
