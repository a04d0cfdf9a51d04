//! Copies of rows and layers, between host memory, device memory and arrays.

use cuguard_sys::{CUDA_MEMCPY3D, CUDA_MEMCPY3D_PEER, CUcontext, CUstream};

use super::copy::copy;
use super::copy_sides::{Side, Size, plan, plan_3d, sides};
use super::{check_context, read};
use crate::result::DriverResult;
use crate::state::lock;

fn copy_3d(stream: Option<CUstream>, parameters: CUDA_MEMCPY3D) -> DriverResult {
    copy(stream, plan_3d(&parameters), Some(parameters))
}

fn copy_3d_peer(stream: Option<CUstream>, parameters: CUDA_MEMCPY3D_PEER) -> DriverResult {
    for context in [parameters.dstContext, parameters.srcContext] {
        if context != CUcontext::NULL {
            check_context(&lock(), context)?;
        }
    }
    let (to, from, size) = sides!(parameters);
    copy(stream, plan(to, from, size), None)
}

pub unsafe fn cuMemcpy3D_v2(parameters: *const CUDA_MEMCPY3D) -> DriverResult {
    // SAFETY: as the caller guarantees.
    copy_3d(None, unsafe { read(parameters) }?)
}

pub unsafe fn cuMemcpy3DAsync_v2(
    parameters: *const CUDA_MEMCPY3D,
    stream: CUstream,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    copy_3d(Some(stream), unsafe { read(parameters) }?)
}

pub unsafe fn cuMemcpy3DPeer(parameters: *const CUDA_MEMCPY3D_PEER) -> DriverResult {
    // SAFETY: as the caller guarantees.
    copy_3d_peer(None, unsafe { read(parameters) }?)
}

pub unsafe fn cuMemcpy3DPeerAsync(
    parameters: *const CUDA_MEMCPY3D_PEER,
    stream: CUstream,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    copy_3d_peer(Some(stream), unsafe { read(parameters) }?)
}
