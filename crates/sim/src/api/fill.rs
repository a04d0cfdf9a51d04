//! Fills: one, two or four bytes over and over, in one run or in rows.

use cuguard_sys::{CUdeviceptr, CUresult, CUstream};

use super::copy::check_length;
use super::valid;
use crate::machine::{Answer, Machine, lock};
use crate::memory_block::Span;
use crate::queue::{run_now, submit_run};

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

    fn spans(self, machine: &Machine, element: usize) -> Result<Vec<Span>, CUresult> {
        if self.width == 0 || self.height == 0 {
            return Ok(Vec::new());
        }
        valid(self.start.is_multiple_of(element as u64))?;
        valid(self.pitch.is_multiple_of(element))?;
        let row = self
            .width
            .checked_mul(element)
            .ok_or(CUresult::INVALID_VALUE)?;
        valid(self.height == 1 || self.pitch >= row)?;
        let mut spans = Vec::new();
        for number in 0..self.height {
            let offset = number
                .checked_mul(self.pitch)
                .ok_or(CUresult::INVALID_VALUE)?;
            let start = self
                .start
                .checked_add(offset as u64)
                .ok_or(CUresult::INVALID_VALUE)?;
            check_length(machine, start, row)?;
            spans.extend(machine.map.span(start, row)?);
        }
        Ok(spans)
    }
}

fn run(spans: &[Span], pattern: &[u8]) {
    for span in spans {
        // SAFETY: the span is memory that the driver knows, kept alive by it.
        unsafe { span.fill(pattern) };
    }
}

fn fill_now(target: Target, pattern: &[u8]) -> Answer {
    let machine = lock();
    let context = machine.current()?;
    let spans = target.spans(&machine, pattern.len())?;
    let legacy = machine.contexts[&context].legacy;
    if !spans.is_empty() {
        drop(run_now(machine, legacy, || run(&spans, pattern)));
    }
    Ok(())
}

fn fill_on(stream: CUstream, target: Target, pattern: &[u8]) -> Answer {
    let mut machine = lock();
    let stream = machine.stream(stream)?;
    let spans = target.spans(&machine, pattern.len())?;
    if spans.is_empty() {
        return Ok(());
    }
    let pattern = pattern.to_vec();
    submit_run(&mut machine, stream, move || run(&spans, &pattern))
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
