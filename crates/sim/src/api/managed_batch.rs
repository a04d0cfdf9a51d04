//! Batches of prefetches and discards of managed memory.
//!
//! As measured on a real driver, ranges before one that is not managed memory are prefetched.

#![allow(clippy::too_many_arguments, reason = "the driver's own parameters")]

use cuguard_sys::{CUdeviceptr, CUmemLocation, CUstream};

use super::copy_batch::{assign, check_stream, read_all};
use crate::copy_engine;
use crate::handle::Id;
use crate::memory::{FILL_BYTE, Shape, host_page};
use crate::result::{DriverResult, valid};
use crate::state::{DriverState, Operand, lock};

/// The ranges of a batch.
///
/// # Safety
///
/// The arrays are null or valid for `count` elements.
unsafe fn ranges(
    ptrs: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    flags: u64,
    stream: CUstream,
) -> DriverResult<Vec<(u64, usize)>> {
    check_stream(stream)?;
    valid(count > 0 && flags == 0)?;
    // SAFETY: as the caller guarantees.
    let (ptrs, sizes) = unsafe { (read_all(ptrs, count)?, read_all(sizes, count)?) };
    Ok(ptrs.into_iter().zip(sizes).collect())
}

/// Discards the pages that lie within a range.
fn discard_pages(state: &mut DriverState, stream: Id, ptr: u64, count: usize) -> DriverResult {
    let page = host_page() as u64;
    let start = ptr.next_multiple_of(page);
    let end = (ptr + count as u64) / page * page;
    if start < end {
        let shape = Shape::contiguous((end - start) as usize);
        let (extent, _) = state.resolve(stream, Operand::Known(start), shape)?;
        // SAFETY: the extent is memory that the driver knows and keeps it allocated.
        let run = copy_engine::work(move || unsafe { extent.fill(&[FILL_BYTE]) });
        state.submit(stream, None, Some(Box::new(run)), None)?;
    }
    Ok(())
}

/// Discards, then prefetches, on a stream.
fn run(
    ranges: &[(u64, usize)],
    locations: &[CUmemLocation],
    discard: bool,
    stream: CUstream,
) -> DriverResult {
    let mut state = lock();
    let stream = state.stream(stream)?;
    state.check_not_capturing(stream)?;
    state.check_implicit(stream)?;
    state.join_implicit_dependencies(stream);
    for location in locations {
        valid(state.location_exists(*location))?;
    }
    for (index, (ptr, count)) in ranges.iter().enumerate() {
        state.managed(*ptr, *count)?;
        if discard {
            discard_pages(&mut state, stream, *ptr, *count)?;
        }
        if let Some(location) = locations.get(index) {
            state.note_prefetch(*ptr, *count, *location)?;
        }
    }
    // The batch has a position on the stream, also if nothing moves.
    state.submit(stream, None, None, None).map(drop)
}

pub unsafe fn cuMemPrefetchBatchAsync(
    ptrs: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    locations: *mut CUmemLocation,
    starts: *mut usize,
    locations_count: usize,
    flags: u64,
    stream: CUstream,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    let (ranges, locations) = unsafe {
        (
            ranges(ptrs, sizes, count, flags, stream)?,
            assign(count, locations, starts, locations_count, |a, b| a <= b)?,
        )
    };
    run(&ranges, &locations, false, stream)
}

pub unsafe fn cuMemDiscardBatchAsync(
    ptrs: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    flags: u64,
    stream: CUstream,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    let ranges = unsafe { ranges(ptrs, sizes, count, flags, stream) }?;
    run(&ranges, &[], true, stream)
}

pub unsafe fn cuMemDiscardAndPrefetchBatchAsync(
    ptrs: *mut CUdeviceptr,
    sizes: *mut usize,
    count: usize,
    locations: *mut CUmemLocation,
    starts: *mut usize,
    locations_count: usize,
    flags: u64,
    stream: CUstream,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    let (ranges, locations) = unsafe {
        (
            ranges(ptrs, sizes, count, flags, stream)?,
            assign(count, locations, starts, locations_count, |a, b| a <= b)?,
        )
    };
    run(&ranges, &locations, true, stream)
}
