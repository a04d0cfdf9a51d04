//! Arrays: memory in a layout for textures. The simulation has no textures, but copies into and out
//! of arrays.

use std::ffi::c_void;

use cuguard_sys::{
    CUDA_ARRAY_DESCRIPTOR, CUDA_ARRAY3D_DESCRIPTOR, CUDA_MEMCPY3D, CUarray, CUdeviceptr, CUresult,
    CUstream, array_format, memory_type,
};

use super::copy::{copy, linear_node};
use super::copy_sides::{Plan, Planner};
use super::{allocate_block, find_array, read, write_out};
use crate::handle::{self, Id, Kind};
use crate::memory::{Extent, Shape, Span, to_pages};
use crate::result::{DriverResult, valid};
use crate::state::{Array, DriverState, Operand, lock, synchronize_context};

/// The bytes of one channel of a format.
pub(super) fn channel_bytes(format: u32) -> DriverResult<usize> {
    match format {
        array_format::UNSIGNED_INT8 | array_format::SIGNED_INT8 => Ok(1),
        array_format::UNSIGNED_INT16 | array_format::SIGNED_INT16 | array_format::HALF => Ok(2),
        array_format::UNSIGNED_INT32 | array_format::SIGNED_INT32 | array_format::FLOAT => Ok(4),
        _ => Err(CUresult::INVALID_VALUE),
    }
}

/// The limits of plain arrays. Those of layers and cube maps are not checked.
fn check_size(descriptor: &CUDA_ARRAY3D_DESCRIPTOR) -> DriverResult {
    /// `CUDA_ARRAY3D_LAYERED` and `CUDA_ARRAY3D_CUBEMAP`
    const LAYERED: u32 = 0x05;
    if descriptor.Flags & LAYERED != 0 {
        return Ok(());
    }
    let (width, height, depth) = (descriptor.Width, descriptor.Height, descriptor.Depth);
    valid(match depth {
        0 => width <= 131_072 && height <= 65_536,
        _ => height > 0 && width.max(height).max(depth) <= 16_384,
    })
}

pub unsafe fn cuArray3DCreate_v2(
    out: *mut CUarray,
    descriptor: *const CUDA_ARRAY3D_DESCRIPTOR,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    let descriptor = unsafe { read(descriptor) }?;
    valid(!out.is_null() && descriptor.Width > 0)?;
    valid(matches!(descriptor.NumChannels, 1 | 2 | 4))?;
    check_size(&descriptor)?;
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
    let found = state.arrays[&find_array(&state, array)?].descriptor;
    // SAFETY: as the caller guarantees.
    unsafe { write_out(descriptor, found) }
}

/// An array without layers.
pub unsafe fn cuArrayCreate_v2(
    out: *mut CUarray,
    descriptor: *const CUDA_ARRAY_DESCRIPTOR,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    let descriptor = unsafe { read(descriptor) }?;
    let descriptor = CUDA_ARRAY3D_DESCRIPTOR {
        Width: descriptor.Width,
        Height: descriptor.Height,
        Format: descriptor.Format,
        NumChannels: descriptor.NumChannels,
        ..CUDA_ARRAY3D_DESCRIPTOR::default()
    };
    // SAFETY: as the caller guarantees.
    unsafe { cuArray3DCreate_v2(out, &descriptor) }
}

pub unsafe fn cuArrayGetDescriptor_v2(
    descriptor: *mut CUDA_ARRAY_DESCRIPTOR,
    array: CUarray,
) -> DriverResult {
    let mut all = CUDA_ARRAY3D_DESCRIPTOR::default();
    // SAFETY: `all` is valid for a write.
    unsafe { cuArray3DGetDescriptor_v2(&mut all, array) }?;
    let found = CUDA_ARRAY_DESCRIPTOR {
        Width: all.Width,
        Height: all.Height,
        Format: all.Format,
        NumChannels: all.NumChannels,
    };
    // SAFETY: as the caller guarantees.
    unsafe { write_out(descriptor, found) }
}

pub unsafe fn cuArrayDestroy(array: CUarray) -> DriverResult {
    let state = lock();
    state.check_current_if_any()?;
    let id = find_array(&state, array)?;
    let context = state.arrays[&id].context;
    let mut state = synchronize_context(state, context);
    // Another thread may have destroyed it meanwhile.
    find_array(&state, array)?;
    state.remove_array(id);
    Ok(())
}

/// Contiguous bytes in the first row of an array.
fn extent(
    state: &DriverState,
    array: CUarray,
    offset: usize,
    bytes: usize,
) -> DriverResult<(Extent, bool)> {
    valid(array != CUarray::NULL)?;
    let array = &state.arrays[&find_array(state, array)?];
    let end = offset.checked_add(bytes);
    valid(end.is_some_and(|end| end <= array.row_bytes))?;
    let span = Span::within(&array.block, offset, bytes);
    let extent = Extent::new(vec![span], Shape::contiguous(bytes));
    Ok((extent, false))
}

/// A copy to an array.
fn to_array(array: CUarray, offset: usize, src: Operand, bytes: usize) -> impl Planner {
    move |state: &DriverState, stream: Id| {
        if bytes == 0 {
            return Ok(None);
        }
        let to = extent(state, array, offset, bytes)?;
        let from = state.resolve(stream, src, Shape::contiguous(bytes))?;
        Ok(Some(Plan { to, from }))
    }
}

/// A copy from an array.
fn from_array(dst: Operand, array: CUarray, offset: usize, bytes: usize) -> impl Planner {
    move |state: &DriverState, stream: Id| {
        if bytes == 0 {
            return Ok(None);
        }
        let from = extent(state, array, offset, bytes)?;
        let to = state.resolve(stream, dst, Shape::contiguous(bytes))?;
        Ok(Some(Plan { to, from }))
    }
}

pub unsafe fn cuMemcpyHtoA_v2(
    dst: CUarray,
    offset: usize,
    src: *const c_void,
    bytes: usize,
) -> DriverResult {
    copy(
        None,
        to_array(dst, offset, Operand::Any(src as u64), bytes),
        None,
    )
}

pub unsafe fn cuMemcpyHtoAAsync_v2(
    dst: CUarray,
    offset: usize,
    src: *const c_void,
    bytes: usize,
    stream: CUstream,
) -> DriverResult {
    let plan = to_array(dst, offset, Operand::Any(src as u64), bytes);
    let node = CUDA_MEMCPY3D {
        dstArray: dst,
        dstXInBytes: offset,
        ..linear_node(
            (memory_type::ARRAY, 0),
            (memory_type::HOST, src as u64),
            bytes,
        )
    };
    copy(Some(stream), plan, Some(node))
}

pub unsafe fn cuMemcpyAtoH_v2(
    dst: *mut c_void,
    src: CUarray,
    offset: usize,
    bytes: usize,
) -> DriverResult {
    copy(
        None,
        from_array(Operand::Any(dst as u64), src, offset, bytes),
        None,
    )
}

pub unsafe fn cuMemcpyAtoHAsync_v2(
    dst: *mut c_void,
    src: CUarray,
    offset: usize,
    bytes: usize,
    stream: CUstream,
) -> DriverResult {
    let plan = from_array(Operand::Any(dst as u64), src, offset, bytes);
    let node = CUDA_MEMCPY3D {
        srcArray: src,
        srcXInBytes: offset,
        ..linear_node(
            (memory_type::HOST, dst as u64),
            (memory_type::ARRAY, 0),
            bytes,
        )
    };
    copy(Some(stream), plan, Some(node))
}

pub unsafe fn cuMemcpyDtoA_v2(
    dst: CUarray,
    offset: usize,
    src: CUdeviceptr,
    bytes: usize,
) -> DriverResult {
    let plan = to_array(dst, offset, Operand::Known(src), bytes);
    copy(None, plan, None)
}

pub unsafe fn cuMemcpyAtoD_v2(
    dst: CUdeviceptr,
    src: CUarray,
    offset: usize,
    bytes: usize,
) -> DriverResult {
    let plan = from_array(Operand::Known(dst), src, offset, bytes);
    copy(None, plan, None)
}

pub unsafe fn cuMemcpyAtoA_v2(
    dst: CUarray,
    dst_offset: usize,
    src: CUarray,
    src_offset: usize,
    bytes: usize,
) -> DriverResult {
    let plan = move |state: &DriverState, _| {
        if bytes == 0 {
            return Ok(None);
        }
        let from = extent(state, src, src_offset, bytes)?;
        let to = extent(state, dst, dst_offset, bytes)?;
        Ok(Some(Plan { to, from }))
    };
    copy(None, plan, None)
}
