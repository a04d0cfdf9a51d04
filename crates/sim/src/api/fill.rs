//! Fills with a pattern of one, two or four bytes, contiguous or in rows.

use cuguard_sys::{CUDA_MEMSET_NODE_PARAMS, CUdeviceptr, CUresult, CUstream};

use super::begin_work;
use crate::copy_engine;
use crate::graph::NodeParams;
use crate::handle::Id;
use crate::memory::Shape;
use crate::result::{DriverResult, valid};
use crate::state::{DriverState, Operand, run_now};

/// The bytes that a fill writes; `None` if there are none.
fn shape(fill: &CUDA_MEMSET_NODE_PARAMS) -> DriverResult<Option<Shape>> {
    if fill.width == 0 || fill.height == 0 {
        return Ok(None);
    }
    let element = fill.elementSize as usize;
    valid(matches!(element, 1 | 2 | 4))?;
    valid(fill.dst.is_multiple_of(element as u64) && fill.pitch.is_multiple_of(element))?;
    let width = fill.width.checked_mul(element);
    let width = width.ok_or(CUresult::INVALID_VALUE)?;
    let (pitch, rows) = (fill.pitch, fill.height);
    valid(rows == 1 || pitch >= width)?;
    Ok(Some(Shape { width, pitch, rows }))
}

/// The work of a fill on a stream; `None` if there is nothing to fill.
pub(super) fn work(
    state: &DriverState,
    stream: Id,
    fill: &CUDA_MEMSET_NODE_PARAMS,
) -> DriverResult<Option<impl FnOnce() + Send + use<>>> {
    let Some(shape) = shape(fill)? else {
        return Ok(None);
    };
    let (extent, _) = state.resolve(stream, Operand::Known(fill.dst), shape)?;
    let (value, len) = (fill.value.to_le_bytes(), fill.elementSize as usize);
    // SAFETY: the extent is memory that the driver knows and keeps it allocated.
    let run = copy_engine::work(move || unsafe { extent.fill(&value[..len]) });
    Ok(Some(run))
}

/// Fails unless a graph can have a node with this fill.
pub(super) fn check_node(state: &DriverState, fill: &CUDA_MEMSET_NODE_PARAMS) -> DriverResult {
    let shape = shape(fill)?.ok_or(CUresult::INVALID_VALUE)?;
    state.check_operand(Operand::Known(fill.dst), shape.into())
}

/// Fills on a stream. Without a stream, the fill is synchronous.
fn fill(stream: Option<CUstream>, fill: CUDA_MEMSET_NODE_PARAMS) -> DriverResult {
    let (mut state, id) = begin_work(stream.unwrap_or(CUstream::NULL))?;
    if state.is_capturing(id) {
        // Like a real driver, does not check the address.
        return match shape(&fill)? {
            Some(_) => state.capture(id, NodeParams::Fill(fill)),
            None => Ok(()),
        };
    }
    let Some(run) = work(&state, id, &fill)? else {
        return Ok(());
    };
    match stream {
        None => run_now(state, id, run),
        Some(_) => state.submit(id, None, Some(Box::new(run)), None).map(drop),
    }
}

/// A fill with elements of one type.
fn elements<T: Into<u32>>(
    dst: CUdeviceptr,
    value: T,
    pitch: usize,
    (width, height): (usize, usize),
) -> CUDA_MEMSET_NODE_PARAMS {
    CUDA_MEMSET_NODE_PARAMS {
        dst,
        pitch,
        value: value.into(),
        elementSize: size_of::<T>() as u32,
        width,
        height,
    }
}

macro_rules! fills {
    ($($run:ident $run_async:ident $rows:ident $rows_async:ident: $type:ty;)*) => {$(
        pub unsafe fn $run(dst: CUdeviceptr, value: $type, count: usize) -> DriverResult {
            fill(None, elements(dst, value, 0, (count, 1)))
        }

        pub unsafe fn $run_async(
            dst: CUdeviceptr,
            value: $type,
            count: usize,
            stream: CUstream,
        ) -> DriverResult {
            fill(Some(stream), elements(dst, value, 0, (count, 1)))
        }

        pub unsafe fn $rows(
            dst: CUdeviceptr,
            pitch: usize,
            value: $type,
            width: usize,
            height: usize,
        ) -> DriverResult {
            fill(None, elements(dst, value, pitch, (width, height)))
        }

        pub unsafe fn $rows_async(
            dst: CUdeviceptr,
            pitch: usize,
            value: $type,
            width: usize,
            height: usize,
            stream: CUstream,
        ) -> DriverResult {
            fill(Some(stream), elements(dst, value, pitch, (width, height)))
        }
    )*};
}

fills! {
    cuMemsetD8_v2 cuMemsetD8Async cuMemsetD2D8_v2 cuMemsetD2D8Async: u8;
    cuMemsetD16_v2 cuMemsetD16Async cuMemsetD2D16_v2 cuMemsetD2D16Async: u16;
    cuMemsetD32_v2 cuMemsetD32Async cuMemsetD2D32_v2 cuMemsetD2D32Async: u32;
}
