//! Fills: one, two or four bytes over and over, in one run or in rows.

use cuguard_sys::{CUdeviceptr, CUresult, CUstream};

use super::valid;
use crate::area::{Area, Shape};
use crate::engine;
use crate::handle::Id;
use crate::lock::lock;
use crate::machine::{Answer, Machine};
use crate::wait::run_now;

/// Where a fill goes: `height` rows of `width` elements, `pitch` bytes apart.
#[derive(Clone, Copy, Debug)]
struct Target {
    start: u64,
    pitch: usize,
    width: usize,
    height: usize,
}

impl Target {
    fn run(start: u64, count: usize) -> Self {
        Self {
            start,
            pitch: 0,
            width: count,
            height: 1,
        }
    }

    fn rows(start: u64, pitch: usize, width: usize, height: usize) -> Self {
        Self {
            start,
            pitch,
            width,
            height,
        }
    }

    /// The memory, for work on a stream; `None` where there is nothing to fill.
    fn resolve(
        self,
        machine: &Machine,
        stream: Id,
        element: usize,
    ) -> Result<Option<Area>, CUresult> {
        if self.width == 0 || self.height == 0 {
            return Ok(None);
        }
        valid(self.start.is_multiple_of(element as u64))?;
        valid(self.pitch.is_multiple_of(element))?;
        let row = self
            .width
            .checked_mul(element)
            .ok_or(CUresult::INVALID_VALUE)?;
        valid(self.height == 1 || self.pitch >= row)?;
        let shape = Shape {
            width: row,
            pitch: self.pitch,
            rows: self.height,
        };
        machine.known_area(stream, self.start, shape).map(Some)
    }
}

/// Does the work, and lets the memory go.
fn run(area: Area, pattern: &[u8]) {
    // SAFETY: the area is memory that the driver knows, kept alive by it.
    unsafe { area.fill(pattern) };
}

fn fill_now(target: Target, pattern: &[u8]) -> Answer {
    let mut machine = lock();
    let context = machine.current()?;
    let legacy = machine.contexts[&context].legacy;
    machine.join_implied_order(legacy);
    match target.resolve(&machine, legacy, pattern.len())? {
        Some(area) => {
            run_now(machine, legacy, move || engine::run(|| run(area, pattern))).map(drop)
        }
        None => Ok(()),
    }
}

fn fill_on(stream: CUstream, target: Target, pattern: &[u8]) -> Answer {
    let mut machine = lock();
    let stream = machine.stream(stream)?;
    machine.join_implied_order(stream);
    let Some(area) = target.resolve(&machine, stream, pattern.len())? else {
        return Ok(());
    };
    let pattern = pattern.to_vec();
    let run = Box::new(move || engine::run(|| run(area, &pattern)));
    machine.submit(stream, None, Some(run), None).map(drop)
}

macro_rules! fills {
    ($($run:ident $run_async:ident $rows:ident $rows_async:ident: $type:ty;)*) => {$(
        pub(crate) unsafe fn $run(dst: CUdeviceptr, value: $type, count: usize) -> Answer {
            fill_now(Target::run(dst, count), &value.to_ne_bytes())
        }

        pub(crate) unsafe fn $run_async(
            dst: CUdeviceptr,
            value: $type,
            count: usize,
            stream: CUstream,
        ) -> Answer {
            fill_on(stream, Target::run(dst, count), &value.to_ne_bytes())
        }

        pub(crate) unsafe fn $rows(
            dst: CUdeviceptr,
            pitch: usize,
            value: $type,
            width: usize,
            height: usize,
        ) -> Answer {
            fill_now(Target::rows(dst, pitch, width, height), &value.to_ne_bytes())
        }

        pub(crate) unsafe fn $rows_async(
            dst: CUdeviceptr,
            pitch: usize,
            value: $type,
            width: usize,
            height: usize,
            stream: CUstream,
        ) -> Answer {
            fill_on(stream, Target::rows(dst, pitch, width, height), &value.to_ne_bytes())
        }
    )*};
}

fills! {
    cuMemsetD8_v2 cuMemsetD8Async cuMemsetD2D8_v2 cuMemsetD2D8Async: u8;
    cuMemsetD16_v2 cuMemsetD16Async cuMemsetD2D16_v2 cuMemsetD2D16Async: u16;
    cuMemsetD32_v2 cuMemsetD32Async cuMemsetD2D32_v2 cuMemsetD2D32Async: u32;
}
