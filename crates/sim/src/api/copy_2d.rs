//! Copies of rows, between host memory, device memory and arrays.

use cuguard_sys::{CUDA_MEMCPY2D, CUarray, CUresult, CUstream, memory_type};

use super::copy::{Moves, Plan, check_length, copy_now, copy_on, pair_up};
use super::{get, valid};
use crate::machine::{Answer, Machine};
use crate::memory_block::Span;

/// One side: where row 0 begins, and how far apart rows are.
enum Rows {
    /// Memory; whether it may be pageable.
    Memory {
        start: u64,
        pitch: usize,
        pageable: bool,
    },
    Array {
        id: u32,
        offset: usize,
        pitch: usize,
    },
}

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
    fn rows(&self, machine: &Machine, width: usize, height: usize) -> Result<Rows, CUresult> {
        let end_of_row = self.x.checked_add(width).ok_or(CUresult::INVALID_VALUE)?;
        if self.kind == memory_type::ARRAY {
            let id = super::array::known(machine, self.array)?;
            let array = &machine.arrays[&id];
            let end = self.y.checked_add(height).ok_or(CUresult::INVALID_VALUE)?;
            let rows = array.descriptor.Height.max(1);
            valid(end_of_row <= array.row_bytes && end <= rows)?;
            return Ok(Rows::Array {
                id,
                offset: self.y * array.row_bytes + self.x,
                pitch: array.row_bytes,
            });
        }
        let (base, pageable) = match self.kind {
            memory_type::HOST => (self.host, true),
            memory_type::DEVICE => (self.device, false),
            memory_type::UNIFIED => (self.device, true),
            _ => return Err(CUresult::INVALID_VALUE),
        };
        // A pitch of 0 stands for rows without a gap.
        let pitch = if self.pitch == 0 {
            end_of_row
        } else {
            self.pitch
        };
        valid(base != 0 && pitch >= end_of_row)?;
        let offset = self
            .y
            .checked_mul(pitch)
            .and_then(|rows| rows.checked_add(self.x));
        let start = offset.and_then(|offset| base.checked_add(offset as u64));
        Ok(Rows::Memory {
            start: start.ok_or(CUresult::INVALID_VALUE)?,
            pitch,
            pageable,
        })
    }
}

impl Rows {
    /// The bytes of one row, and whether they are pageable.
    fn row(
        &self,
        machine: &Machine,
        number: usize,
        width: usize,
    ) -> Result<(Vec<Span>, bool), CUresult> {
        match *self {
            Rows::Memory {
                start,
                pitch,
                pageable,
            } => {
                let offset = number.checked_mul(pitch).ok_or(CUresult::INVALID_VALUE)?;
                let at = start
                    .checked_add(offset as u64)
                    .ok_or(CUresult::INVALID_VALUE)?;
                check_length(machine, at, width)?;
                if pageable {
                    machine.map.span_or_pageable(at, width)
                } else {
                    Ok((machine.map.span(at, width)?, false))
                }
            }
            Rows::Array { id, offset, pitch } => {
                let block = &machine.arrays[&id].block;
                Ok((
                    vec![Span::within(block, offset + number * pitch, width)],
                    false,
                ))
            }
        }
    }
}

fn plan(copy: CUDA_MEMCPY2D) -> impl FnOnce(&Machine) -> Result<Plan, CUresult> {
    move |machine| {
        let mut plan = Plan {
            moves: Moves::new(),
            from_pageable: false,
            to_pageable: false,
        };
        let (width, height) = (copy.WidthInBytes, copy.Height);
        if width == 0 || height == 0 {
            return Ok(plan);
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
        let from = from.rows(machine, width, height)?;
        let to = to.rows(machine, width, height)?;
        for number in 0..height {
            let (dst, to_pageable) = to.row(machine, number, width)?;
            let (src, from_pageable) = from.row(machine, number, width)?;
            pair_up(&dst, &src, &mut plan.moves);
            plan.from_pageable |= from_pageable;
            plan.to_pageable |= to_pageable;
        }
        Ok(plan)
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
) -> impl FnOnce(&Machine) -> Result<Plan, CUresult> {
    move |machine| {
        let id = super::array::known(machine, array)?;
        let block = &machine.arrays[&id].block;
        valid(
            offset
                .checked_add(bytes)
                .is_some_and(|end| end <= block.len()),
        )?;
        let mut moves = Moves::new();
        let mut pageable = false;
        if bytes > 0 {
            check_length(machine, host, bytes)?;
            let there = [Span::within(block, offset, bytes)];
            let here;
            (here, pageable) = machine.map.span_or_pageable(host, bytes)?;
            match to_array {
                true => pair_up(&there, &here, &mut moves),
                false => pair_up(&here, &there, &mut moves),
            }
        }
        Ok(Plan {
            moves,
            from_pageable: pageable && to_array,
            to_pageable: pageable && !to_array,
        })
    }
}
