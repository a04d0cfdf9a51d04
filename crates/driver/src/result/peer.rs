//! Access of a device to the memory of another, and copies between contexts.

use cuguard_sys::{CUcontext, CUdevice, CUdeviceptr, CUstream};

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

/// Copies between the memory of two contexts in the order of `stream`, a stream of either.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE`, or any other driver error, also that of earlier asynchronous work.
///
/// # Safety
///
/// Both contexts and the stream are alive. Until the copy is complete, both ranges are allocated for `bytes`
/// bytes, in their contexts, and no unordered work uses the destination or writes the source.
#[inline]
pub unsafe fn copy_async(
    (dst, dst_context): (CUdeviceptr, CUcontext),
    (src, src_context): (CUdeviceptr, CUcontext),
    bytes: usize,
    stream: CUstream,
) -> Result {
    // SAFETY: as the caller ensures.
    unsafe {
        call!(cuMemcpyPeerAsync(
            dst,
            dst_context,
            src,
            src_context,
            bytes,
            stream
        ))
    }
}
