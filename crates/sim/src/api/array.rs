//! Arrays: memory in a layout for textures. The simulation has no textures, but copies into and out
//! of arrays.

use std::ffi::c_void;

use cuguard_sys::{CUDA_ARRAY3D_DESCRIPTOR, CUarray, CUresult};

use super::copy::{Plan, copy};
use super::{allocate_block, read, write_out};
use crate::handle::{self, Id, Kind};
use crate::memory::{Extent, Shape, Span, to_pages};
use crate::result::{DriverResult, valid};
use crate::state::{Array, DriverState, Operand, lock, synchronize_context};

/// The id of a live array.
pub(super) fn find(state: &DriverState, array: CUarray) -> DriverResult<Id> {
    let is_live = |id| state.arrays.contains_key(&id);
    state.live_id(Kind::Array, array.0, CUresult::INVALID_HANDLE, is_live)
}

/// The bytes of one channel, by `CUarray_format`.
fn channel_bytes(format: u32) -> DriverResult<usize> {
    match format {
        0x01 | 0x08 => Ok(1),
        0x02 | 0x09 | 0x10 => Ok(2),
        0x03 | 0x0a | 0x20 => Ok(4),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

pub unsafe fn cuArray3DCreate_v2(
    out: *mut CUarray,
    descriptor: *const CUDA_ARRAY3D_DESCRIPTOR,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    let descriptor = unsafe { read(descriptor) }?;
    valid(!out.is_null() && descriptor.Width > 0)?;
    valid(matches!(descriptor.NumChannels, 1 | 2 | 4))?;
    let element = channel_bytes(descriptor.Format)? * descriptor.NumChannels as usize;
    let bytes = [element, descriptor.Height.max(1), descriptor.Depth.max(1)]
        .iter()
        .try_fold(descriptor.Width, |bytes, size| bytes.checked_mul(*size))
        .ok_or(CUresult::INVALID_VALUE)?;
    let mut state = lock();
    let context = state.current()?;
    let block = allocate_block(bytes)?;
    let device = state.device_of(context);
    let pages = to_pages(bytes as u64).ok_or(CUresult::OUT_OF_MEMORY)?;
    state.reserve_pages(device, pages)?;
    let id = state.ids.next(Kind::Array);
    let array = Array {
        context,
        descriptor,
        row_bytes: descriptor.Width * element,
        bytes: bytes as u64,
        block,
    };
    state.arrays.insert(id, array);
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, CUarray(handle::encode(Kind::Array, id))) }
}

pub unsafe fn cuArray3DGetDescriptor_v2(
    descriptor: *mut CUDA_ARRAY3D_DESCRIPTOR,
    array: CUarray,
) -> DriverResult {
    let state = lock();
    state.current()?;
    let found = state.arrays[&find(&state, array)?].descriptor;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(descriptor, found) }
}

pub unsafe fn cuArrayDestroy(array: CUarray) -> DriverResult {
    let state = lock();
    state.check_current_if_any()?;
    let id = find(&state, array)?;
    let context = state.arrays[&id].context;
    let mut state = synchronize_context(state, context);
    // Another thread may have destroyed it meanwhile.
    find(&state, array)?;
    state.remove_array(id);
    Ok(())
}

/// Contiguous bytes of an array.
fn extent(
    state: &DriverState,
    array: CUarray,
    offset: usize,
    bytes: usize,
) -> DriverResult<Extent> {
    let block = &state.arrays[&find(state, array)?].block;
    let end = offset.checked_add(bytes);
    valid(end.is_some_and(|end| end <= block.len()))?;
    Ok(Extent::new(
        vec![Span::within(block, offset, bytes)],
        Shape::contiguous(bytes),
    ))
}

pub unsafe fn cuMemcpyHtoA_v2(
    dst: CUarray,
    offset: usize,
    src: *const c_void,
    bytes: usize,
) -> DriverResult {
    copy(None, |state: &DriverState, stream| {
        let to = (extent(state, dst, offset, bytes)?, false);
        if bytes == 0 {
            return Ok(None);
        }
        let from = state.resolve(stream, Operand::Any(src as u64), Shape::contiguous(bytes))?;
        Ok(Some(Plan { to, from }))
    })
}

pub unsafe fn cuMemcpyAtoH_v2(
    dst: *mut c_void,
    src: CUarray,
    offset: usize,
    bytes: usize,
) -> DriverResult {
    copy(None, |state: &DriverState, stream| {
        let from = (extent(state, src, offset, bytes)?, false);
        if bytes == 0 {
            return Ok(None);
        }
        let to = state.resolve(stream, Operand::Any(dst as u64), Shape::contiguous(bytes))?;
        Ok(Some(Plan { to, from }))
    })
}
