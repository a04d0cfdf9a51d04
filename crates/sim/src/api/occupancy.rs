//! How many blocks of a kernel fit on a multiprocessor, by its threads, registers and shared memory.

use cuguard_sys::{CUfunction, CUoccupancyB2DSize, CUresult, occupancy_flags};

use super::function::{MAX_THREADS, find_any, max_dynamic_shared, max_threads, registers};
use super::{write_optional, write_out};
use crate::code::Kernel;
use crate::result::{DriverResult, valid};
use crate::state::Settings;
use crate::state::lock;

/// What an H200 has, of each for one multiprocessor.
pub(super) const MULTIPROCESSORS: u32 = 132;
const MAX_BLOCKS: u32 = 32;
const MAX_WARPS: u32 = 64;
const REGISTERS: u32 = 65_536;
const SHARED: usize = 233_472;
/// Shared memory that the system uses in each block, and the units in which registers and shared memory are allocated.
const RESERVED_SHARED: usize = 1024;
const SHARED_UNIT: usize = 128;
const REGISTER_UNIT: u32 = 256;
const WARP: u32 = 32;

/// The blocks of this many threads that fit on a multiprocessor. The kernel's own limit of threads does not count.
pub(super) fn active_blocks(
    kernel: &Kernel,
    settings: &Settings,
    threads: u32,
    dynamic_shared: usize,
) -> u32 {
    let most = max_dynamic_shared(kernel, settings);
    if threads == 0 || threads > MAX_THREADS || dynamic_shared > most.unsigned_abs() as usize {
        return 0;
    }
    let shared = kernel.shared + dynamic_shared;
    let warps = threads.div_ceil(WARP);
    let per_warp = (registers(kernel) * WARP).next_multiple_of(REGISTER_UNIT);
    // Registers belong to one of four parts of a multiprocessor.
    let warps_by_registers = (REGISTERS / 4 / per_warp.max(1)) * 4;
    let shared = (shared + RESERVED_SHARED).next_multiple_of(SHARED_UNIT);
    let by_shared = u32::try_from(SHARED / shared).unwrap_or(u32::MAX);
    (MAX_WARPS / warps)
        .min(warps_by_registers / warps)
        .min(by_shared)
        .min(MAX_BLOCKS)
}

pub unsafe fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
    out: *mut i32,
    function: CUfunction,
    threads: i32,
    dynamic_shared: usize,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe {
        cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
            out,
            function,
            threads,
            dynamic_shared,
            occupancy_flags::DEFAULT,
        )
    }
}

pub unsafe fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
    out: *mut i32,
    function: CUfunction,
    threads: i32,
    dynamic_shared: usize,
    flags: u32,
) -> DriverResult {
    valid(!out.is_null() && flags <= occupancy_flags::DISABLE_CACHING_OVERRIDE)?;
    let threads = u32::try_from(threads).map_err(|_| CUresult::INVALID_VALUE)?;
    valid(threads > 0)?;
    let mut state = lock();
    let id = find_any(&mut state, function)?;
    let own = state.code.function(id)?;
    let blocks = active_blocks(own.kernel, &own.settings, threads, dynamic_shared);
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, blocks as i32) }
}

pub unsafe fn cuOccupancyMaxPotentialBlockSize(
    grid: *mut i32,
    block: *mut i32,
    function: CUfunction,
    shared_of: Option<CUoccupancyB2DSize>,
    dynamic_shared: usize,
    limit: i32,
) -> DriverResult {
    // SAFETY: as the caller guarantees.
    unsafe {
        cuOccupancyMaxPotentialBlockSizeWithFlags(
            grid,
            block,
            function,
            shared_of,
            dynamic_shared,
            limit,
            occupancy_flags::DEFAULT,
        )
    }
}

/// The block size with the most threads on a multiprocessor, the largest among equals.
pub unsafe fn cuOccupancyMaxPotentialBlockSizeWithFlags(
    grid: *mut i32,
    block: *mut i32,
    function: CUfunction,
    shared_of: Option<CUoccupancyB2DSize>,
    dynamic_shared: usize,
    limit: i32,
    flags: u32,
) -> DriverResult {
    valid(!grid.is_null() && !block.is_null())?;
    valid(flags <= occupancy_flags::DISABLE_CACHING_OVERRIDE && limit >= 0)?;
    let (kernel, settings) = {
        let mut state = lock();
        let id = find_any(&mut state, function)?;
        let own = state.code.function(id)?;
        (own.kernel.clone(), own.settings)
    };
    let most = max_threads(&kernel);
    let most = match limit {
        0 => most,
        limit => most.min(limit.unsigned_abs()),
    };
    let (mut best, mut best_threads) = ((0, 0), 0);
    // Whole warps, and the limit itself.
    let sizes = (1..=most / WARP).map(|warps| warps * WARP);
    for threads in sizes.rev().chain((most % WARP != 0).then_some(most)) {
        let shared = match shared_of {
            // SAFETY: the program's own function, without the lock: it may call the driver.
            Some(shared_of) => unsafe { shared_of(threads as i32) as usize },
            None => dynamic_shared,
        };
        let blocks = active_blocks(&kernel, &settings, threads, shared);
        if blocks * threads > best_threads {
            best_threads = blocks * threads;
            best = (blocks, threads);
        }
    }
    let (blocks, threads) = best;
    // SAFETY: as the caller guarantees.
    unsafe {
        write_optional(grid, (blocks * MULTIPROCESSORS) as i32);
        write_optional(block, threads as i32);
    }
    Ok(())
}

/// The dynamic shared memory of each block if so many blocks are to fit on a multiprocessor.
pub unsafe fn cuOccupancyAvailableDynamicSMemPerBlock(
    out: *mut usize,
    function: CUfunction,
    blocks: i32,
    threads: i32,
) -> DriverResult {
    let (Ok(blocks @ 1..), Ok(threads @ 1..)) = (u32::try_from(blocks), u32::try_from(threads))
    else {
        return Err(CUresult::INVALID_VALUE);
    };
    valid(!out.is_null())?;
    let mut state = lock();
    let id = find_any(&mut state, function)?;
    let own = state.code.function(id)?;
    let (kernel, settings) = (own.kernel, &own.settings);
    valid(active_blocks(kernel, settings, threads, 0) >= blocks)?;
    // The part of a block, without what the system uses of it: as measured.
    let part = SHARED / blocks as usize / SHARED_UNIT * SHARED_UNIT;
    let left = part.checked_sub(kernel.shared);
    let most = max_dynamic_shared(kernel, settings).unsigned_abs() as usize;
    let left = left.ok_or(CUresult::INVALID_VALUE)?.min(most);
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, left) }
}
