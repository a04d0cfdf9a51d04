//! Batches of copies: many copies on a stream in one call.
//!
//! As measured on a real driver, the parameters of all copies are checked first, and copies before
//! one with invalid memory are executed.

#![allow(clippy::too_many_arguments, reason = "the driver's own parameters")]

use cuguard_sys::{
    CUDA_MEMCPY3D_BATCH_OP, CUdeviceptr, CUmemLocation, CUmemcpy3DOperand, CUmemcpyAttributes,
    CUresult, CUstream, mem_location_type, memcpy_flags, memcpy_src_access_order as order,
    memcpy3d_operand_type as operand_type, memory_type,
};

use super::copy::copy;
use super::copy_sides::{self, Side, Size};
use super::copy_sides::{Plan, Planner};
use super::{find_array, read, write_optional};
use crate::handle::Id;
use crate::memory::Shape;
use crate::result::{DriverResult, check, valid};
use crate::state::{DriverState, Operand, lock};
use crate::thread_state;

/// What `failIdx` is where no single copy is at fault.
const NO_COPY: usize = usize::MAX;

/// An error of a batch, and the number of the copy at fault.
type BatchResult<T = ()> = Result<T, (CUresult, usize)>;

/// An error that no single copy is at fault for.
fn whole<T>(result: DriverResult<T>) -> BatchResult<T> {
    result.map_err(|code| (code, NO_COPY))
}

/// A batch cannot be on the legacy default stream.
pub(super) fn check_stream(stream: CUstream) -> DriverResult {
    valid(stream != CUstream::NULL && stream != CUstream::LEGACY)?;
    let mut state = lock();
    let capturing = state.stream(stream).is_ok_and(|id| state.is_capturing(id));
    // A batch cannot be captured, and does not invalidate the capture.
    check(!capturing, CUresult::STREAM_CAPTURE_UNSUPPORTED)
}

/// Without a current context, no address is valid.
fn check_context() -> DriverResult {
    valid(thread_state::current().is_some())
}

/// The elements of an array of the caller.
///
/// # Safety
///
/// `from` is null or valid for `count` elements.
pub(super) unsafe fn read_all<T: Copy>(from: *const T, count: usize) -> DriverResult<Vec<T>> {
    valid(!from.is_null())?;
    // SAFETY: as the caller guarantees.
    let read_one = |index| unsafe { read(from.add(index)) };
    (0..count).map(read_one).collect()
}

/// For each of `count` elements, which of the `values` it has: value `i` is for the elements from
/// `starts[i]` to the next start. `in_order` compares a start with the next.
///
/// # Safety
///
/// Both are null or valid for `values_count` elements.
pub(super) unsafe fn assign<T: Copy>(
    count: usize,
    values: *const T,
    starts: *const usize,
    values_count: usize,
    in_order: impl Fn(&usize, &usize) -> bool,
) -> DriverResult<Vec<T>> {
    valid(values_count > 0 && values_count <= count)?;
    // SAFETY: as the caller guarantees.
    let (values, starts) = unsafe {
        (
            read_all(values, values_count)?,
            read_all(starts, values_count)?,
        )
    };
    valid(starts[0] == 0 && starts.is_sorted_by(in_order))?;
    valid(starts.iter().all(|start| *start < count))?;
    let mut which = 0;
    let value_at = |index| {
        // Like a real driver, ignores a second start at the same element.
        if index > 0 && starts.get(which + 1) == Some(&index) {
            which += 1;
        }
        values[which]
    };
    Ok((0..count).map(value_at).collect())
}

/// When the source of a copy is read.
fn check_order(access: u32, flags: u32) -> DriverResult {
    valid((order::STREAM..=order::ANY).contains(&access))?;
    valid(flags & !memcpy_flags::PREFER_OVERLAP_WITH_COMPUTE == 0)
}

/// A hint where the memory of a copy is has no effect, but must be a location.
fn check_hint(state: &DriverState, hint: CUmemLocation) -> DriverResult {
    let known = hint.type_ <= mem_location_type::HOST_NUMA_CURRENT;
    let of_device = hint.type_ == mem_location_type::DEVICE;
    valid(known && (!of_device || state.location_exists(hint)))
}

/// Sets whether the source is read before the call returns. A source that is accessed in the order
/// of the stream is not; one that is accessed during the call is, if the host can change it.
fn with_order(access: u32, src: u64, plan: impl Planner) -> impl Planner {
    move |state: &DriverState, stream: Id| {
        let mut plan = plan(state, stream)?;
        if let Some(Plan { from, .. }) = &mut plan {
            from.1 = match access {
                order::STREAM => false,
                order::DURING_API_CALL => {
                    from.1 || state.map.find(src).is_some_and(|range| range.on_host())
                }
                _ => from.1,
            };
        }
        Ok(plan)
    }
}

/// # Safety
///
/// The arrays are null or valid for `count` and `attributes_count` elements.
unsafe fn batch(
    dsts: *mut CUdeviceptr,
    srcs: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    attributes: *mut CUmemcpyAttributes,
    starts: *mut usize,
    attributes_count: usize,
    stream: CUstream,
) -> BatchResult {
    whole(check_stream(stream))?;
    whole(valid(count > 0))?;
    // SAFETY: as the caller guarantees.
    let (dsts, srcs, sizes, attributes) = unsafe {
        (
            whole(read_all(dsts, count))?,
            whole(read_all(srcs, count))?,
            whole(read_all(sizes, count))?,
            whole(assign(
                count,
                attributes,
                starts,
                attributes_count,
                |a, b| a < b,
            ))?,
        )
    };
    {
        let state = lock();
        for attributes in &attributes {
            let checked = check_order(attributes.srcAccessOrder, attributes.flags)
                .and_then(|()| check_hint(&state, attributes.srcLocHint))
                .and_then(|()| check_hint(&state, attributes.dstLocHint));
            whole(checked)?;
        }
    }
    for index in 0..count {
        let (dst, src, bytes) = (dsts[index], srcs[index], sizes[index]);
        let order = attributes[index].srcAccessOrder;
        let plan = with_order(order, src, linear(dst, src, bytes));
        copy(Some(stream), plan, None).map_err(|code| (code, index))?;
    }
    Ok(())
}

/// A copy of contiguous bytes between any memory.
fn linear(dst: u64, src: u64, bytes: usize) -> impl Planner {
    move |state: &DriverState, stream: Id| {
        valid(dst != 0 && src != 0 && bytes > 0)?;
        let shape = Shape::contiguous(bytes);
        let to = state.resolve(stream, Operand::Any(dst), shape)?;
        let from = state.resolve(stream, Operand::Any(src), shape)?;
        Ok(Some(Plan { to, from }))
    }
}

/// Executes a batch, and writes the number of the copy at fault.
///
/// # Safety
///
/// `out` is null or valid for a write.
unsafe fn report(
    out: *mut usize,
    stream: CUstream,
    run: impl FnOnce() -> BatchResult,
) -> DriverResult {
    valid(stream != CUstream::NULL)?;
    let result = whole(check_context()).and_then(|()| run());
    let failed = result.map_or_else(|(_, index)| index, |()| NO_COPY);
    // SAFETY: as the caller guarantees.
    unsafe { write_optional(out, failed) };
    result.map_err(|(code, _)| code)
}

pub unsafe fn cuMemcpyBatchAsync(
    dsts: *mut CUdeviceptr,
    srcs: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    attributes: *mut CUmemcpyAttributes,
    starts: *mut usize,
    attributes_count: usize,
    failed: *mut usize,
    stream: CUstream,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe {
        let n = attributes_count;
        report(failed, stream, || {
            batch(dsts, srcs, sizes, count, attributes, starts, n, stream)
        })
    }
}

pub unsafe fn cuMemcpyBatchAsync_v2(
    dsts: *mut CUdeviceptr,
    srcs: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    attributes: *mut CUmemcpyAttributes,
    starts: *mut usize,
    attributes_count: usize,
    stream: CUstream,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe {
        let n = attributes_count;
        report(std::ptr::null_mut(), stream, || {
            batch(dsts, srcs, sizes, count, attributes, starts, n, stream)
        })
    }
}

/// The bytes of an element of an operand's array; `None` for a pointer.
fn element_bytes(state: &DriverState, operand: &CUmemcpy3DOperand) -> DriverResult<Option<usize>> {
    match operand.type_ {
        operand_type::POINTER => Ok(None),
        operand_type::ARRAY => {
            // SAFETY: the type determines the member; all members are plain numbers.
            let array = unsafe { operand.op.array }.array;
            let array = &state.arrays[&find_array(state, array)?];
            Ok(Some(array.row_bytes / array.descriptor.Width))
        }
        _ => Err(CUresult::INVALID_VALUE),
    }
}

/// An operand whose elements have `element` bytes.
fn side(operand: &CUmemcpy3DOperand, element: usize, size: Size) -> DriverResult<Side> {
    let bytes = |elements: usize| {
        let bytes = elements.checked_mul(element);
        bytes.ok_or(CUresult::INVALID_VALUE)
    };
    let nothing = Side {
        memory_type: memory_type::UNIFIED,
        host: 0,
        device: 0,
        array: cuguard_sys::CUarray::NULL,
        start: (0, 0, 0),
        pitch: 0,
        height: 0,
    };
    if operand.type_ == operand_type::ARRAY {
        // SAFETY: as in `element_bytes`.
        let array = unsafe { operand.op.array };
        let offset = array.offset;
        return Ok(Side {
            memory_type: memory_type::ARRAY,
            array: array.array,
            start: (bytes(offset.x)?, offset.y, offset.z),
            ..nothing
        });
    }
    // SAFETY: as in `element_bytes`.
    let pointer = unsafe { operand.op.ptr };
    let pitch = bytes(pointer.rowLength)?;
    valid(pitch == 0 || pitch >= size.width)?;
    valid(pointer.layerHeight == 0 || pointer.layerHeight >= size.rows)?;
    Ok(Side {
        device: pointer.ptr,
        pitch,
        height: pointer.layerHeight,
        ..nothing
    })
}

/// The sides and the size of a copy.
fn parse(state: &DriverState, op: &CUDA_MEMCPY3D_BATCH_OP) -> DriverResult<(Side, Side, Size)> {
    check_order(op.srcAccessOrder, op.flags)?;
    let extent = op.extent;
    valid(extent.width > 0 && extent.height > 0 && extent.depth > 0)?;
    let (to, from) = (
        element_bytes(state, &op.dst)?,
        element_bytes(state, &op.src)?,
    );
    valid(to.is_none() || from.is_none() || to == from)?;
    let element = to.or(from).unwrap_or(1);
    let width = extent.width.checked_mul(element);
    let size = Size {
        width: width.ok_or(CUresult::INVALID_VALUE)?,
        rows: extent.height,
        layers: extent.depth,
    };
    let to = side(&op.dst, element, size)?;
    let from = side(&op.src, element, size)?;
    Ok((to, from, size))
}

/// # Safety
///
/// `ops` is null or valid for `count` elements.
unsafe fn batch_3d(
    count: usize,
    ops: *mut CUDA_MEMCPY3D_BATCH_OP,
    flags: u64,
    stream: CUstream,
) -> BatchResult {
    whole(check_stream(stream))?;
    whole(valid(count > 0 && flags == 0))?;
    // SAFETY: as the caller guarantees.
    let ops = whole(unsafe { read_all(ops, count) })?;
    let mut copies = Vec::with_capacity(count);
    {
        let state = lock();
        for (index, op) in ops.iter().enumerate() {
            copies.push(parse(&state, op).map_err(|code| (code, index))?);
        }
    }
    // Like a real driver, does not say which copy has invalid memory.
    for (op, (to, from, size)) in ops.iter().zip(copies) {
        let plan = copy_sides::plan(to, from, size);
        let plan = with_order(op.srcAccessOrder, from.device, plan);
        whole(copy(Some(stream), plan, None))?;
    }
    Ok(())
}

pub unsafe fn cuMemcpy3DBatchAsync(
    count: usize,
    ops: *mut CUDA_MEMCPY3D_BATCH_OP,
    failed: *mut usize,
    flags: u64,
    stream: CUstream,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe { report(failed, stream, || batch_3d(count, ops, flags, stream)) }
}

pub unsafe fn cuMemcpy3DBatchAsync_v2(
    count: usize,
    ops: *mut CUDA_MEMCPY3D_BATCH_OP,
    flags: u64,
    stream: CUstream,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe {
        report(std::ptr::null_mut(), stream, || {
            batch_3d(count, ops, flags, stream)
        })
    }
}
