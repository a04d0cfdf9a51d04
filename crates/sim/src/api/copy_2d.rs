//! Copies of rows, between host memory, device memory and arrays.

use cuguard_sys::{CUDA_MEMCPY2D, CUstream};

use super::copy_sides::{self, Side, Size};
use super::read;
use crate::result::DriverResult;

/// A copy of one layer.
fn copy_2d(stream: Option<CUstream>, copy: CUDA_MEMCPY2D) -> DriverResult {
    let to = Side {
        memory_type: copy.dstMemoryType,
        host: copy.dstHost as u64,
        device: copy.dstDevice,
        array: copy.dstArray,
        start: (copy.dstXInBytes, copy.dstY, 0),
        pitch: copy.dstPitch,
        height: 0,
    };
    let from = Side {
        memory_type: copy.srcMemoryType,
        host: copy.srcHost as u64,
        device: copy.srcDevice,
        array: copy.srcArray,
        start: (copy.srcXInBytes, copy.srcY, 0),
        pitch: copy.srcPitch,
        height: 0,
    };
    let size = Size {
        width: copy.WidthInBytes,
        rows: copy.Height,
        layers: 1,
    };
    let node = copy_sides::node_3d(to, from, size);
    super::copy::copy(stream, copy_sides::plan(to, from, size), Some(node))
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
