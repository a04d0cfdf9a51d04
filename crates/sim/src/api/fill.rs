//! Fills with a pattern of one, two or four bytes, contiguous or in rows.

use cuguard_sys::{CUdeviceptr, CUresult, CUstream};

use super::begin_work;
use crate::copy_engine;
use crate::memory::Shape;
use crate::result::{DriverResult, valid};
use crate::state::{Operand, run_now};

/// Fills `rows` rows of `width` elements, `pitch` bytes apart, on a stream. Without a stream, the
/// fill is synchronous.
fn fill(
    stream: Option<CUstream>,
    dst: u64,
    pitch: usize,
    (width, rows): (usize, usize),
    pattern: &[u8],
) -> DriverResult {
    let (mut state, id) = begin_work(stream.unwrap_or(CUstream::NULL))?;
    if width == 0 || rows == 0 {
        return Ok(());
    }
    valid(dst.is_multiple_of(pattern.len() as u64) && pitch.is_multiple_of(pattern.len()))?;
    let width = width.checked_mul(pattern.len());
    let width = width.ok_or(CUresult::INVALID_VALUE)?;
    valid(rows == 1 || pitch >= width)?;
    let shape = Shape { width, pitch, rows };
    let (extent, _) = state.resolve(id, Operand::Known(dst), shape)?;
    let pattern = pattern.to_vec();
    // SAFETY: the extent is memory that the driver knows and keeps it allocated.
    let run = move || copy_engine::run(|| unsafe { extent.fill(&pattern) });
    match stream {
        None => run_now(state, id, run),
        Some(_) => state.submit(id, None, Some(Box::new(run)), None).map(drop),
    }
}

macro_rules! fills {
    ($($run:ident $run_async:ident $rows:ident $rows_async:ident: $type:ty;)*) => {$(
        pub unsafe fn $run(dst: CUdeviceptr, value: $type, count: usize) -> DriverResult {
            fill(None, dst, 0, (count, 1), &value.to_ne_bytes())
        }

        pub unsafe fn $run_async(
            dst: CUdeviceptr,
            value: $type,
            count: usize,
            stream: CUstream,
        ) -> DriverResult {
            fill(Some(stream), dst, 0, (count, 1), &value.to_ne_bytes())
        }

        pub unsafe fn $rows(
            dst: CUdeviceptr,
            pitch: usize,
            value: $type,
            width: usize,
            height: usize,
        ) -> DriverResult {
            fill(None, dst, pitch, (width, height), &value.to_ne_bytes())
        }

        pub unsafe fn $rows_async(
            dst: CUdeviceptr,
            pitch: usize,
            value: $type,
            width: usize,
            height: usize,
            stream: CUstream,
        ) -> DriverResult {
            fill(Some(stream), dst, pitch, (width, height), &value.to_ne_bytes())
        }
    )*};
}

fills! {
    cuMemsetD8_v2 cuMemsetD8Async cuMemsetD2D8_v2 cuMemsetD2D8Async: u8;
    cuMemsetD16_v2 cuMemsetD16Async cuMemsetD2D16_v2 cuMemsetD2D16Async: u16;
    cuMemsetD32_v2 cuMemsetD32Async cuMemsetD2D32_v2 cuMemsetD2D32Async: u32;
}
