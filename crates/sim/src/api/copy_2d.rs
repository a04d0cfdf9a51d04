//! Copies of rows, between host memory, device memory and arrays.

use cuguard_sys::{CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUstream};

use super::copy_3d::copy_3d;
use super::read;
use crate::result::DriverResult;

/// A copy of one layer.
fn copy_2d(stream: Option<CUstream>, copy: CUDA_MEMCPY2D) -> DriverResult {
    let copy = CUDA_MEMCPY3D {
        srcXInBytes: copy.srcXInBytes,
        srcY: copy.srcY,
        srcMemoryType: copy.srcMemoryType,
        srcHost: copy.srcHost,
        srcDevice: copy.srcDevice,
        srcArray: copy.srcArray,
        srcPitch: copy.srcPitch,
        dstXInBytes: copy.dstXInBytes,
        dstY: copy.dstY,
        dstMemoryType: copy.dstMemoryType,
        dstHost: copy.dstHost,
        dstDevice: copy.dstDevice,
        dstArray: copy.dstArray,
        dstPitch: copy.dstPitch,
        WidthInBytes: copy.WidthInBytes,
        Height: copy.Height,
        Depth: 1,
        ..CUDA_MEMCPY3D::default()
    };
    copy_3d(stream, copy)
}

pub unsafe fn cuMemcpy2D_v2(parameters: *const CUDA_MEMCPY2D) -> DriverResult {
    // SAFETY: as the caller guarantees.
    copy_2d(None, unsafe { read(parameters) }?)
}

pub unsafe fn cuMemcpy2DUnaligned_v2(parameters: *const CUDA_MEMCPY2D) -> DriverResult {
    // SAFETY: as the caller guarantees.
    copy_2d(None, unsafe { read(parameters) }?)
}

pub unsafe fn cuMemcpy2DAsync_v2(
    parameters: *const CUDA_MEMCPY2D,
    stream: CUstream,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    copy_2d(Some(stream), unsafe { read(parameters) }?)
}
