//! A memory pool, from which stream-ordered memory is allocated. Only offsets, no bytes.
//!
//! Measured on a real GPU: a pool reserves device memory in chunks of 32 MiB and packs blocks into
//! them, also across the boundary of two chunks. A chunk is released when no block touches it, and
//! only when the host synchronizes (with the stream, an event or the context) or trims the pool. A
//! freed block is reused at once on its own stream, and on others when the stream has reached the
//! free.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cuguard_sys::{mem_access_flags, mem_location_type};

use super::block::MemoryBlock;
use super::device_memory::{BLOCK_ALIGN, DeviceMemory};
use super::free_ranges::FreeRanges;
use super::freed_blocks::{FreedBlock, FreedBlocks};
use super::pool_location::PoolLocation;
use crate::config::PAGE;
use crate::handle::Id;

/// What a pool reserves at a time.
pub(crate) const CHUNK: u64 = 32 << 20;

#[derive(Clone, Copy, Debug, Default)]
struct Chunk {
    /// Bytes of device memory, from the chunk's start. Less than [`CHUNK`] only if the device had
    /// no more.
    bytes: u64,
    /// How many blocks touch it.
    blocks: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Pool {
    pub(crate) location: PoolLocation,
    /// The device whose memory this is; for other memory, the one that pointer attributes report.
    pub(crate) device: u32,
    /// All addresses of a pool that the host can access, from the first allocation on.
    pub(crate) backing: Option<Arc<MemoryBlock>>,
    /// The most that the pool may reserve; `None` for no limit.
    pub(crate) max_reserved: Option<u64>,
    /// What `cuMemPoolSetAccess` set, by the type and id of the location.
    access: BTreeMap<(u32, i32), u32>,
    /// The address of offset 0.
    pub(crate) base: u64,
    /// Destroyed by the program; removed when its last block is freed.
    pub(crate) destroyed: bool,
    pub(crate) release_threshold: u64,
    /// `REUSE_FOLLOW_EVENT_DEPENDENCIES`, `REUSE_ALLOW_OPPORTUNISTIC`,
    /// `REUSE_ALLOW_INTERNAL_DEPENDENCIES`.
    pub(crate) reuse: [bool; 3],
    pub(crate) used: u64,
    pub(crate) used_high: u64,
    pub(crate) reserved_high: u64,
    /// The number of live allocations.
    pub(crate) live: u64,
    span: u64,
    free_ranges: FreeRanges,
    freed: FreedBlocks,
    chunks: BTreeMap<u64, Chunk>,
    /// The chunks that no block touches.
    empty: BTreeSet<u64>,
    /// The bytes of all chunks.
    reserved: u64,
}

/// The numbers of the chunks that a block touches.
fn touched(offset: u64, len: u64) -> std::ops::RangeInclusive<u64> {
    offset / CHUNK..=(offset + len - 1) / CHUNK
}

impl Pool {
    /// A pool with `span` addresses from `base`.
    pub(crate) fn new(device: u32, base: u64, span: u64) -> Self {
        Self {
            location: PoolLocation::device(device),
            device,
            base,
            reuse: [true; 3],
            span,
            free_ranges: FreeRanges::new(0, span),
            ..Self::default()
        }
    }

    /// The device whose memory the pool reserves; `None` for host memory.
    pub(crate) fn memory_device(&self) -> Option<u32> {
        self.location.is_device_memory().then_some(self.device)
    }

    /// Sets the addresses of a pool that has none yet.
    pub(crate) fn set_backing(&mut self, block: Arc<MemoryBlock>) {
        self.base = block.start().as_ptr() as u64;
        self.span = block.len() as u64;
        self.free_ranges = FreeRanges::new(0, self.span);
        self.backing = Some(block);
    }

    /// The number of addresses.
    pub(crate) fn span(&self) -> u64 {
        self.span
    }

    /// Which access a location has, by its type and id.
    pub(crate) fn access(&self, place: (u32, i32)) -> u32 {
        let own = match place.0 {
            mem_location_type::DEVICE => self.location == PoolLocation::device(place.1 as u32),
            _ => self.location.is_host_memory(),
        };
        match own {
            true => mem_access_flags::READWRITE,
            false => self.access.get(&place).copied().unwrap_or(0),
        }
    }

    pub(crate) fn set_access(&mut self, place: (u32, i32), flags: u32) {
        self.access.insert(place, flags);
    }

    /// The bytes of device memory that the pool has reserved.
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved
    }

    /// The address of `bytes`, for work on `stream`.
    pub(crate) fn allocate(
        &mut self,
        bytes: u64,
        stream: Id,
        memory: &mut DeviceMemory,
    ) -> Option<u64> {
        let len = bytes.checked_next_multiple_of(BLOCK_ALIGN);
        let len = len.filter(|len| *len <= self.span)?;
        let offset = match self.reuse_freed(len, stream) {
            Some(offset) => offset,
            None => {
                let offset = self.free_ranges.allocate(len, BLOCK_ALIGN)?;
                if !self.reserve(offset, len, memory) {
                    self.free_ranges.free(offset, len);
                    return None;
                }
                self.touch(offset, len, 1);
                offset
            }
        };
        self.live += 1;
        self.used += bytes;
        self.used_high = self.used_high.max(self.used);
        self.reserved_high = self.reserved_high.max(self.reserved);
        Some(self.base + offset)
    }

    /// Undoes [`allocate`](Self::allocate).
    pub(crate) fn undo_allocate(&mut self, address: u64, bytes: u64) {
        self.used -= bytes;
        self.free_now(address, bytes);
    }

    /// Takes a block that was freed on the same stream, or whose stream has reached the free.
    fn reuse_freed(&mut self, len: u64, stream: Id) -> Option<u64> {
        let block = self.freed.take(len, stream, self.reuse[1])?;
        if block.len > len {
            let rest = FreedBlock {
                len: block.len - len,
                offset: block.offset + len,
                ..block
            };
            self.touch(block.offset, len, 1);
            self.touch(rest.offset, rest.len, 1);
            self.touch(block.offset, block.len, -1);
            self.freed.insert(rest);
        }
        Some(block.offset)
    }

    /// Changes the number of blocks that touch each chunk of a range.
    fn touch(&mut self, offset: u64, len: u64, change: i64) {
        for number in touched(offset, len) {
            if let Some(chunk) = self.chunks.get_mut(&number) {
                chunk.blocks = chunk.blocks.saturating_add_signed(change);
                if chunk.blocks == 0 {
                    self.empty.insert(number);
                } else {
                    self.empty.remove(&number);
                }
            }
        }
    }

    fn chunk(&self, number: u64) -> Chunk {
        self.chunks.get(&number).copied().unwrap_or_default()
    }

    /// Reserves device memory for a range; nothing is reserved if it fails.
    fn reserve(&mut self, offset: u64, len: u64, memory: &mut DeviceMemory) -> bool {
        let mut before = Vec::new();
        for number in touched(offset, len) {
            let chunk = self.chunk(number);
            let needed = (offset + len - number * CHUNK).min(CHUNK);
            let needed = needed.next_multiple_of(PAGE);
            if chunk.bytes >= needed {
                continue;
            }
            // The whole chunk if the device has as much, else what this block needs.
            let mut sizes = [CHUNK, needed].into_iter();
            let mut reserve = |bytes: u64| {
                let more = bytes - chunk.bytes;
                self.max_reserved
                    .is_none_or(|max| self.reserved + more <= max)
                    && memory.reserve(more)
            };
            let Some(bytes) = sizes.find(|bytes| reserve(*bytes)) else {
                for (number, bytes) in before {
                    memory.release(self.chunk(number).bytes - bytes);
                    self.resize_chunk(number, bytes);
                }
                return false;
            };
            before.push((number, chunk.bytes));
            self.resize_chunk(number, bytes);
        }
        true
    }

    /// Sets the bytes of a chunk; 0 removes it.
    fn resize_chunk(&mut self, number: u64, bytes: u64) {
        let chunk = self.chunk(number);
        self.reserved = self.reserved + bytes - chunk.bytes;
        if bytes > 0 {
            self.chunks.insert(number, Chunk { bytes, ..chunk });
        } else {
            self.chunks.remove(&number);
        }
        if bytes > 0 && chunk.blocks == 0 {
            self.empty.insert(number);
        } else {
            self.empty.remove(&number);
        }
    }

    /// Frees a block after work on a stream.
    pub(crate) fn free_after(&mut self, address: u64, bytes: u64, stream: Id, work: u64) {
        self.live -= 1;
        self.used -= bytes;
        self.freed.insert(FreedBlock {
            len: bytes.next_multiple_of(BLOCK_ALIGN),
            offset: address - self.base,
            stream,
            work,
            reached: false,
        });
    }

    /// Undoes [`free_after`](Self::free_after).
    pub(crate) fn undo_free(&mut self, address: u64, bytes: u64, stream: Id, work: u64) {
        let block = self.freed.remove(stream, work, address - self.base);
        // Not a matter of memory safety: these are numbers.
        debug_assert!(block.is_some());
        self.live += 1;
        self.used += bytes;
    }

    /// A stream has reached a free.
    pub(crate) fn free_reached(&mut self, stream: Id, work: u64) {
        self.freed.mark_reached(stream, work);
    }

    /// Frees a block at once. Like the real driver, does not subtract it from the used bytes.
    pub(crate) fn free_now(&mut self, address: u64, bytes: u64) {
        self.live -= 1;
        self.free(address - self.base, bytes.next_multiple_of(BLOCK_ALIGN));
    }

    fn free(&mut self, offset: u64, len: u64) {
        self.touch(offset, len, -1);
        self.free_ranges.free(offset, len);
    }

    /// Makes blocks available again whose free the host has synchronized with: `completed` returns the last such
    /// work of a stream, if any.
    pub(crate) fn reclaim(&mut self, completed: impl Fn(Id) -> Option<u64>) {
        for block in self.freed.take_synchronized(completed) {
            self.free(block.offset, block.len);
        }
    }

    /// Whether there are freed blocks that the host has not synchronized with.
    pub(crate) fn has_freed(&self) -> bool {
        !self.freed.is_empty()
    }

    /// Releases empty chunks, the last ones first, while more than `keep` bytes are reserved.
    pub(crate) fn release(&mut self, keep: u64, memory: &mut DeviceMemory) {
        while let Some(number) = self.empty.last().copied() {
            let bytes = self.chunk(number).bytes;
            if self.reserved <= keep || self.reserved - bytes < keep {
                break;
            }
            self.resize_chunk(number, 0);
            memory.release(bytes);
            if let Some(backing) = &self.backing {
                backing.release_pages((number * CHUNK) as usize, CHUNK as usize);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn pool(mib: u64) -> (Pool, DeviceMemory) {
        let memory = DeviceMemory::new(mib * MIB);
        (Pool::new(0, 0, 1 << 40), memory)
    }

    #[test]
    fn blocks_lie_across_chunks_and_a_chunk_goes_back_when_nothing_touches_it() {
        let (mut pool, mut memory) = pool(256);
        let mut take = |pool: &mut Pool| pool.allocate(20 * MIB, 1, &mut memory).unwrap();
        let (a, b, c) = (take(&mut pool), take(&mut pool), take(&mut pool));
        assert_eq!(pool.reserved(), 64 * MIB);
        pool.free_now(b, 20 * MIB);
        pool.release(0, &mut memory);
        assert_eq!(pool.reserved(), 64 * MIB);
        pool.free_now(a, 20 * MIB);
        pool.release(0, &mut memory);
        assert_eq!(pool.reserved(), 32 * MIB);
        pool.free_now(c, 20 * MIB);
        pool.release(0, &mut memory);
        assert_eq!((pool.reserved(), memory.used), (0, 0));
    }

    #[test]
    fn a_freed_block_serves_its_own_stream_at_once_and_others_when_it_happened() {
        let (mut pool, mut memory) = pool(256);
        let a = pool.allocate(MIB, 1, &mut memory).unwrap();
        pool.free_after(a, MIB, 1, 7);
        let other = pool.allocate(MIB, 2, &mut memory).unwrap();
        assert_ne!(other, a);
        let own = pool.allocate(MIB, 1, &mut memory).unwrap();
        assert_eq!(own, a);
        pool.free_after(own, MIB, 1, 8);
        pool.free_reached(1, 7);
        assert_ne!(pool.allocate(MIB, 2, &mut memory), Some(a));
        pool.free_reached(1, 8);
        assert_eq!(pool.allocate(MIB, 2, &mut memory), Some(a));
    }

    #[test]
    fn the_last_chunk_is_as_small_as_the_device_is_full() {
        let (mut pool, mut memory) = pool(38);
        assert!(pool.allocate(30 * MIB, 1, &mut memory).is_some());
        assert!(pool.allocate(7 * MIB, 1, &mut memory).is_some());
        assert_eq!((pool.reserved(), memory.free()), (38 * MIB, 0));
        assert_eq!(pool.allocate(2 * MIB, 1, &mut memory), None);
        assert_eq!(pool.reserved(), 38 * MIB);
    }

    #[test]
    fn what_is_kept_is_kept() {
        let (mut pool, mut memory) = pool(256);
        let a = pool.allocate(100 * MIB, 1, &mut memory).unwrap();
        pool.free_after(a, 100 * MIB, 1, 1);
        pool.release(0, &mut memory);
        assert_eq!(
            pool.reserved(),
            128 * MIB,
            "the host has not synchronized with the free"
        );
        pool.reclaim(|_| Some(1));
        pool.release(50 * MIB, &mut memory);
        assert_eq!(pool.reserved(), 64 * MIB);
        pool.release(0, &mut memory);
        assert_eq!(memory.used, 0);
    }

    #[test]
    fn what_is_undone_leaves_no_trace() {
        let (mut pool, mut memory) = pool(256);
        let a = pool.allocate(40 * MIB, 1, &mut memory).unwrap();
        pool.undo_allocate(a, 40 * MIB);
        pool.release(0, &mut memory);
        assert_eq!((pool.used, pool.live, memory.used), (0, 0, 0));
        let a = pool.allocate(MIB, 1, &mut memory).unwrap();
        pool.free_after(a, MIB, 1, 1);
        pool.undo_free(a, MIB, 1, 1);
        assert_eq!((pool.used, pool.live), (MIB, 1));
        assert!(!pool.has_freed());
    }

    #[test]
    fn the_sums_are_what_is_there_whatever_is_done() {
        let (mut pool, mut memory) = pool(1024);
        let mut blocks = Vec::new();
        let mut seed = 1_u64;
        for step in 1..5000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (number, stream) = (seed >> 33, seed >> 60 & 3);
            let bytes = number % (50 * MIB) + 1;
            match number % 7 {
                0..3 => blocks.extend(
                    pool.allocate(bytes, stream, &mut memory)
                        .map(|a| (a, bytes)),
                ),
                3 | 4 if !blocks.is_empty() => {
                    let (a, bytes) = blocks.swap_remove(number as usize % blocks.len());
                    pool.free_after(a, bytes, stream, step);
                    pool.free_reached(stream, step);
                }
                5 if !blocks.is_empty() => {
                    let (a, bytes) = blocks.swap_remove(number as usize % blocks.len());
                    pool.undo_allocate(a, bytes);
                }
                _ => {
                    pool.reclaim(|of| (of == stream).then_some(step));
                    pool.release(100 * MIB, &mut memory);
                }
            }
            assert_eq!(pool.reserved, memory.used);
            assert_eq!(
                pool.used,
                blocks.iter().map(|(_, bytes)| bytes).sum::<u64>()
            );
            for (number, chunk) in &pool.chunks {
                let empty = pool.free_ranges.contains(number * CHUNK, CHUNK);
                assert_eq!(empty, chunk.blocks == 0);
                assert_eq!(empty, pool.empty.contains(number));
            }
        }
        for (a, bytes) in blocks {
            pool.undo_allocate(a, bytes);
        }
        pool.reclaim(|_| Some(u64::MAX));
        pool.release(0, &mut memory);
        assert_eq!((pool.reserved, memory.used, pool.live), (0, 0, 0));
        assert!(pool.free_ranges.contains(0, 1 << 40));
    }
}
