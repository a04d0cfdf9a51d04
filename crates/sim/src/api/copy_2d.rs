//! Copies of rows, between host memory, device memory and arrays.

use cuguard_sys::{CUDA_MEMCPY2D, CUarray, CUresult, CUstream, memory_type};

use super::copy::{self, Plan, Planner, copy_now, copy_on};
use super::{get, valid};
use crate::area::{Area, Shape, Span};
use crate::handle::Id;
use crate::machine::{Answer, Machine};

/// One side as [`CUDA_MEMCPY2D`] describes it.
struct Side {
    kind: u32,
    host: u64,
    device: u64,
    array: CUarray,
    x: usize,
    y: usize,
    pitch: usize,
}

impl Side {
    /// The rows, and whether they are pageable.
    fn resolve(
        &self,
        machine: &Machine,
        stream: Id,
        width: usize,
        rows: usize,
    ) -> Result<(Area, bool), CUresult> {
        let end_of_row = self.x.checked_add(width).ok_or(CUresult::INVALID_VALUE)?;
        if self.kind == memory_type::ARRAY {
            let array = &machine.arrays[&super::array::known(machine, self.array)?];
            let end = self.y.checked_add(rows).ok_or(CUresult::INVALID_VALUE)?;
            let has_rows = array.descriptor.Height.max(1);
            valid(end_of_row <= array.row_bytes && end <= has_rows)?;
            let offset = self.y * array.row_bytes + self.x;
            let shape = Shape {
                width,
                pitch: array.row_bytes,
                rows,
            };
            let extent = shape.extent().ok_or(CUresult::INVALID_VALUE)?;
            let span = Span::within(&array.block, offset, extent);
            return Ok((Area::new(vec![span], shape), false));
        }
        // A pitch of 0 stands for rows without a gap.
        let pitch = if self.pitch == 0 {
            end_of_row
        } else {
            self.pitch
        };
        let (base, any) = match self.kind {
            memory_type::HOST => (self.host, true),
            memory_type::DEVICE => (self.device, false),
            memory_type::UNIFIED => (self.device, true),
            _ => return Err(CUresult::INVALID_VALUE),
        };
        valid(base != 0 && pitch >= end_of_row)?;
        let offset = self
            .y
            .checked_mul(pitch)
            .and_then(|rows| rows.checked_add(self.x));
        let start = offset.and_then(|offset| base.checked_add(offset as u64));
        let start = start.ok_or(CUresult::INVALID_VALUE)?;
        let side = match any {
            true => copy::Side::Any(start),
            false => copy::Side::Known(start),
        };
        side.resolve(machine, stream, Shape { width, pitch, rows })
    }
}

fn plan(copy: CUDA_MEMCPY2D) -> impl Planner {
    move |machine: &Machine, stream: Id| {
        let (width, height) = (copy.WidthInBytes, copy.Height);
        if width == 0 || height == 0 {
            return Ok(None);
        }
        let from = Side {
            kind: copy.srcMemoryType,
            host: copy.srcHost as u64,
            device: copy.srcDevice,
            array: copy.srcArray,
            x: copy.srcXInBytes,
            y: copy.srcY,
            pitch: copy.srcPitch,
        };
        let to = Side {
            kind: copy.dstMemoryType,
            host: copy.dstHost as u64,
            device: copy.dstDevice,
            array: copy.dstArray,
            x: copy.dstXInBytes,
            y: copy.dstY,
            pitch: copy.dstPitch,
        };
        let (from, from_pageable) = from.resolve(machine, stream, width, height)?;
        let (to, to_pageable) = to.resolve(machine, stream, width, height)?;
        Ok(Some(Plan {
            to,
            from,
            from_pageable,
            to_pageable,
        }))
    }
}

pub(crate) unsafe fn cuMemcpy2D_v2(copy: *const CUDA_MEMCPY2D) -> Answer {
    // SAFETY: as the caller promises.
    copy_now(plan(unsafe { get(copy) }?))
}

pub(crate) unsafe fn cuMemcpy2DUnaligned_v2(copy: *const CUDA_MEMCPY2D) -> Answer {
    // SAFETY: as the caller promises.
    copy_now(plan(unsafe { get(copy) }?))
}

pub(crate) unsafe fn cuMemcpy2DAsync_v2(copy: *const CUDA_MEMCPY2D, stream: CUstream) -> Answer {
    // SAFETY: as the caller promises.
    copy_on(stream, plan(unsafe { get(copy) }?))
}

/// The plan of a copy between one run of host memory and the beginning of an array.
pub(super) fn array_run(
    array: CUarray,
    offset: usize,
    host: u64,
    bytes: usize,
    to_array: bool,
) -> impl Planner {
    move |machine: &Machine, stream: Id| {
        let block = &machine.arrays[&super::array::known(machine, array)?].block;
        let end = offset.checked_add(bytes);
        valid(end.is_some_and(|end| end <= block.len()))?;
        if bytes == 0 {
            return Ok(None);
        }
        let shape = Shape::run(bytes);
        let there = Area::new(vec![Span::within(block, offset, bytes)], shape);
        let (here, pageable) = machine.any_area(stream, host, shape)?;
        let (to, from) = match to_array {
            true => (there, here),
            false => (here, there),
        };
        Ok(Some(Plan {
            to,
            from,
            from_pageable: pageable && to_array,
            to_pageable: pageable && !to_array,
        }))
    }
}
