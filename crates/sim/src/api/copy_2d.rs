//! Copies of rows, between host memory, device memory and arrays.

use cuguard_sys::{CUDA_MEMCPY2D, CUresult, CUstream, memory_type};

use super::array;
use super::copy::{Plan, Planner, copy};
use super::read;
use crate::handle::Id;
use crate::memory::{Extent, Shape, Span};
use crate::result::{DriverResult, valid};
use crate::state::{DriverState, Operand};

/// The source rows of a copy, and whether they are pageable.
fn resolve_source(
    state: &DriverState,
    stream: Id,
    copy: &CUDA_MEMCPY2D,
) -> DriverResult<(Extent, bool)> {
    let (width, rows, x, y) = (copy.WidthInBytes, copy.Height, copy.srcXInBytes, copy.srcY);
    let end_of_row = x.checked_add(width).ok_or(CUresult::INVALID_VALUE)?;
    if copy.srcMemoryType == memory_type::ARRAY {
        let array = &state.arrays[&array::find(state, copy.srcArray)?];
        let pitch = array.row_bytes;
        let end = y.checked_add(rows).ok_or(CUresult::INVALID_VALUE)?;
        valid(end_of_row <= pitch && end <= array.descriptor.Height.max(1))?;
        let shape = Shape { width, pitch, rows };
        let len = shape.byte_len().ok_or(CUresult::INVALID_VALUE)?;
        let span = Span::within(&array.block, y * pitch + x, len);
        return Ok((Extent::new(vec![span], shape), false));
    }
    // A pitch of 0 means contiguous rows.
    let pitch = match copy.srcPitch {
        0 => end_of_row,
        pitch => pitch,
    };
    let (base, operand): (u64, fn(u64) -> Operand) = match copy.srcMemoryType {
        memory_type::HOST => (copy.srcHost as u64, Operand::Any),
        memory_type::DEVICE => (copy.srcDevice, Operand::Known),
        memory_type::UNIFIED => (copy.srcDevice, Operand::Any),
        _ => return Err(CUresult::INVALID_VALUE),
    };
    valid(base != 0 && pitch >= end_of_row)?;
    let offset = y.checked_mul(pitch).and_then(|rows| rows.checked_add(x));
    let start = offset.and_then(|offset| base.checked_add(offset as u64));
    let start = start.ok_or(CUresult::INVALID_VALUE)?;
    state.resolve(stream, operand(start), Shape { width, pitch, rows })
}

fn plan(copy: CUDA_MEMCPY2D) -> impl Planner {
    move |state: &DriverState, stream: Id| {
        if copy.WidthInBytes == 0 || copy.Height == 0 {
            return Ok(None);
        }
        let reversed = CUDA_MEMCPY2D {
            srcMemoryType: copy.dstMemoryType,
            srcHost: copy.dstHost,
            srcDevice: copy.dstDevice,
            srcArray: copy.dstArray,
            srcXInBytes: copy.dstXInBytes,
            srcY: copy.dstY,
            srcPitch: copy.dstPitch,
            ..copy
        };
        let from = resolve_source(state, stream, &copy)?;
        let to = resolve_source(state, stream, &reversed)?;
        Ok(Some(Plan { to, from }))
    }
}

pub unsafe fn cuMemcpy2D_v2(parameters: *const CUDA_MEMCPY2D) -> DriverResult {
    // SAFETY: as the caller guarantees.
    copy(None, plan(unsafe { read(parameters) }?))
}

pub unsafe fn cuMemcpy2DUnaligned_v2(parameters: *const CUDA_MEMCPY2D) -> DriverResult {
    // SAFETY: as the caller guarantees.
    copy(None, plan(unsafe { read(parameters) }?))
}

pub unsafe fn cuMemcpy2DAsync_v2(
    parameters: *const CUDA_MEMCPY2D,
    stream: CUstream,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    copy(Some(stream), plan(unsafe { read(parameters) }?))
}
