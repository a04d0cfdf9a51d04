//! Blocks of a pool, for the tests of pools.

use cuguard::memory::Source;
use cuguard::{DeviceBuffer, Pool, Result};

pub const MIB: usize = 1 << 20;

/// Uninitialized memory.
#[track_caller]
pub fn take(source: &impl Source, bytes: usize) -> Result<DeviceBuffer<u8>> {
    // SAFETY: the tests read only what they have written.
    unsafe { DeviceBuffer::uninitialized(source, bytes) }
}

/// The address of a block.
#[allow(dead_code, reason = "not every test program compares addresses")]
pub fn at(buffer: &DeviceBuffer<u8>) -> u64 {
    buffer.as_view().as_device_ptr().as_raw()
}

/// Of `count` blocks of 1 MiB every other one, the others freed: pages that can be merged.
#[allow(dead_code, reason = "not every test program merges pages")]
pub fn every_other(pool: &Pool, count: usize) -> Result<Vec<DeviceBuffer<u8>>> {
    let blocks: Vec<_> = (0..count).map(|_| take(pool, MIB)).collect::<Result<_>>()?;
    Ok(blocks.into_iter().skip(1).step_by(2).collect())
}
