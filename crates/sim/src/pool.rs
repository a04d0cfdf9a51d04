//! A memory pool: where stream-ordered allocations come from. Pure bookkeeping of offsets.
//!
//! Measured on a real GPU: a pool takes memory in chunks of 32 MiB and packs blocks into them
//! one after the other, also across the border of two chunks. A chunk goes back only when no
//! block touches it, and only when the host waits (for the stream, one of its events or the
//! context) or asks for it. A block that was freed is used again at once by its own stream, and
//! by others when the free has happened.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::address_map::Range;
use crate::config::PAGE;
use crate::freed::{Freed, FreedBlocks};
use crate::gaps::Gaps;
use crate::handle::Id;
use crate::physical::{DeviceMemory, UNIT};

/// What a pool takes from the device at a time.
pub(crate) const CHUNK: u64 = 32 << 20;

#[derive(Clone, Copy, Debug, Default)]
struct Chunk {
    /// Bytes taken from the device, from the chunk's beginning. Less than [`CHUNK`] only where
    /// the device had no more.
    bytes: u64,
    /// How many blocks touch it that are not given back.
    blocks: u64,
}

#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) device: u32,
    /// The address of offset 0.
    pub(crate) base: u64,
    /// Destroyed by the program; it lives on until its last block is freed.
    pub(crate) destroyed: bool,
    pub(crate) release_threshold: u64,
    /// `REUSE_FOLLOW_EVENT_DEPENDENCIES`, `REUSE_ALLOW_OPPORTUNISTIC`,
    /// `REUSE_ALLOW_INTERNAL_DEPENDENCIES`.
    pub(crate) reuse: [bool; 3],
    pub(crate) used: u64,
    pub(crate) used_high: u64,
    pub(crate) reserved_high: u64,
    pub(crate) live: u64,
    /// Ranges whose free was asked for and has not happened, by their id: the program no longer
    /// knows the address, but work may still use the memory.
    pub(crate) leaving: HashMap<u64, Range>,
    /// How many offsets there are.
    span: u64,
    gaps: Gaps,
    freed: FreedBlocks,
    chunks: BTreeMap<u64, Chunk>,
    /// The chunks that no block touches.
    empty: BTreeSet<u64>,
    /// The bytes of all chunks.
    reserved: u64,
}

/// The chunks that a block touches.
fn touched(offset: u64, len: u64) -> std::ops::RangeInclusive<u64> {
    offset / CHUNK..=(offset + len - 1) / CHUNK
}

impl Pool {
    pub(crate) fn new(device: u32, base: u64, span: u64) -> Self {
        Self {
            device,
            base,
            destroyed: false,
            release_threshold: 0,
            reuse: [true; 3],
            used: 0,
            used_high: 0,
            reserved_high: 0,
            live: 0,
            leaving: HashMap::new(),
            span,
            gaps: Gaps::new(0, span),
            freed: FreedBlocks::default(),
            chunks: BTreeMap::new(),
            empty: BTreeSet::new(),
            reserved: 0,
        }
    }

    /// The bytes taken from the device.
    pub(crate) fn reserved(&self) -> u64 {
        self.reserved
    }

    /// An address for `bytes`, for work on `stream`.
    pub(crate) fn take(
        &mut self,
        bytes: u64,
        stream: Id,
        memory: &mut DeviceMemory,
    ) -> Option<u64> {
        let len = bytes
            .checked_next_multiple_of(UNIT)
            .filter(|len| *len <= self.span)?;
        let offset = match self.take_freed(len, stream) {
            Some(offset) => offset,
            None => {
                let offset = self.gaps.take(len, UNIT)?;
                if !self.reserve(offset, len, memory) {
                    self.gaps.give(offset, len);
                    return None;
                }
                self.touch(offset, len);
                offset
            }
        };
        self.live += 1;
        self.used += bytes;
        self.used_high = self.used_high.max(self.used);
        self.reserved_high = self.reserved_high.max(self.reserved);
        Some(self.base + offset)
    }

    /// Takes an allocation back that did not come about.
    pub(crate) fn undo_take(&mut self, address: u64, bytes: u64) {
        self.used -= bytes;
        self.free_now(address, bytes);
    }

    /// A block that was freed on the same stream, or whose free has happened.
    fn take_freed(&mut self, len: u64, stream: Id) -> Option<u64> {
        let block = self.freed.take(len, stream, self.reuse[1])?;
        if block.len > len {
            let rest = Freed {
                len: block.len - len,
                offset: block.offset + len,
                ..block
            };
            self.touch(block.offset, len);
            self.touch(rest.offset, rest.len);
            self.untouch(block.offset, block.len);
            self.freed.insert(rest);
        }
        Some(block.offset)
    }

    fn touch(&mut self, offset: u64, len: u64) {
        for number in touched(offset, len) {
            if let Some(chunk) = self.chunks.get_mut(&number) {
                chunk.blocks += 1;
                self.empty.remove(&number);
            }
        }
    }

    fn untouch(&mut self, offset: u64, len: u64) {
        for number in touched(offset, len) {
            if let Some(chunk) = self.chunks.get_mut(&number) {
                chunk.blocks -= 1;
                if chunk.blocks == 0 {
                    self.empty.insert(number);
                }
            }
        }
    }

    /// Makes sure that there is memory behind a range.
    fn reserve(&mut self, offset: u64, len: u64, memory: &mut DeviceMemory) -> bool {
        let mut before = Vec::new();
        for number in touched(offset, len) {
            let chunk = self.chunks.get(&number).copied().unwrap_or_default();
            let needed = (offset + len - number * CHUNK)
                .min(CHUNK)
                .next_multiple_of(PAGE);
            if chunk.bytes >= needed {
                continue;
            }
            // The whole chunk if the device has as much, else what this block needs.
            let bytes = if memory.take(CHUNK - chunk.bytes) {
                CHUNK
            } else if memory.take(needed - chunk.bytes) {
                needed
            } else {
                for (number, chunk) in before {
                    memory.give(self.chunks[&number].bytes - Chunk::bytes(chunk));
                    self.set_chunk(number, chunk);
                }
                return false;
            };
            before.push((number, self.chunks.get(&number).copied()));
            self.set_chunk(number, Some(Chunk { bytes, ..chunk }));
        }
        true
    }

    /// Replaces a chunk, with all that is known of it; `None` takes it away.
    fn set_chunk(&mut self, number: u64, chunk: Option<Chunk>) {
        let before = match chunk {
            Some(chunk) => self.chunks.insert(number, chunk),
            None => self.chunks.remove(&number),
        };
        self.reserved = self.reserved + Chunk::bytes(chunk) - Chunk::bytes(before);
        if chunk.is_some_and(|chunk| chunk.blocks == 0) {
            self.empty.insert(number);
        } else {
            self.empty.remove(&number);
        }
    }

    /// Notes that a block will be free after a piece of work.
    pub(crate) fn free_after(&mut self, address: u64, bytes: u64, stream: Id, work: u64) {
        self.live -= 1;
        self.used -= bytes;
        self.freed.insert(Freed {
            len: bytes.next_multiple_of(UNIT),
            offset: address - self.base,
            stream,
            work,
            happened: false,
        });
    }

    /// Takes back what [`free_after`](Self::free_after) noted: the work was refused.
    pub(crate) fn undo_free(&mut self, address: u64, bytes: u64, stream: Id, work: u64) {
        let block = self.freed.remove(stream, work, address - self.base);
        // Not for memory safety: these are numbers, and the memory is the block's.
        debug_assert!(block.is_some());
        self.live += 1;
        self.used += bytes;
    }

    /// A stream has come to a free.
    pub(crate) fn free_happened(&mut self, stream: Id, work: u64) {
        self.freed.mark_happened(stream, work);
    }

    /// Frees a block at once. The real driver does not take it off its count of used bytes.
    pub(crate) fn free_now(&mut self, address: u64, bytes: u64) {
        self.live -= 1;
        self.give(address - self.base, bytes.next_multiple_of(UNIT));
    }

    fn give(&mut self, offset: u64, len: u64) {
        self.untouch(offset, len);
        self.gaps.give(offset, len);
    }

    /// Takes back blocks whose free the host has seen happen: `seen` tells, of a stream, up to
    /// which piece of work, if any.
    pub(crate) fn observe(&mut self, seen: impl Fn(Id) -> Option<u64>) {
        for block in self.freed.take_seen(seen) {
            self.give(block.offset, block.len);
        }
    }

    /// Whether blocks wait for their free to be seen.
    pub(crate) fn has_freed(&self) -> bool {
        !self.freed.is_empty()
    }

    /// Gives empty chunks back, the last ones first, while more than `keep` bytes are reserved.
    pub(crate) fn release(&mut self, keep: u64, memory: &mut DeviceMemory) {
        while let Some(number) = self.empty.last().copied() {
            let bytes = Chunk::bytes(self.chunks.get(&number).copied());
            if self.reserved <= keep || self.reserved - bytes < keep {
                break;
            }
            self.set_chunk(number, None);
            memory.give(bytes);
        }
    }
}

impl Chunk {
    fn bytes(chunk: Option<Self>) -> u64 {
        chunk.map_or(0, |chunk| chunk.bytes)
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
        let mut take = |pool: &mut Pool| pool.take(20 * MIB, 1, &mut memory).unwrap();
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
        let a = pool.take(MIB, 1, &mut memory).unwrap();
        pool.free_after(a, MIB, 1, 7);
        let other = pool.take(MIB, 2, &mut memory).unwrap();
        assert_ne!(other, a);
        let own = pool.take(MIB, 1, &mut memory).unwrap();
        assert_eq!(own, a);
        pool.free_after(own, MIB, 1, 8);
        pool.free_happened(1, 7);
        assert_ne!(pool.take(MIB, 2, &mut memory), Some(a));
        pool.free_happened(1, 8);
        assert_eq!(pool.take(MIB, 2, &mut memory), Some(a));
    }

    #[test]
    fn the_last_chunk_is_as_small_as_the_device_is_full() {
        let (mut pool, mut memory) = pool(38);
        assert!(pool.take(30 * MIB, 1, &mut memory).is_some());
        assert!(pool.take(7 * MIB, 1, &mut memory).is_some());
        assert_eq!((pool.reserved(), memory.free()), (38 * MIB, 0));
        assert_eq!(pool.take(2 * MIB, 1, &mut memory), None);
        assert_eq!(pool.reserved(), 38 * MIB);
    }

    #[test]
    fn what_is_kept_is_kept() {
        let (mut pool, mut memory) = pool(256);
        let a = pool.take(100 * MIB, 1, &mut memory).unwrap();
        pool.free_after(a, 100 * MIB, 1, 1);
        pool.release(0, &mut memory);
        assert_eq!(
            pool.reserved(),
            128 * MIB,
            "the host has not seen the free happen"
        );
        pool.observe(|_| Some(1));
        pool.release(50 * MIB, &mut memory);
        assert_eq!(pool.reserved(), 64 * MIB);
        pool.release(0, &mut memory);
        assert_eq!(memory.used, 0);
    }

    #[test]
    fn what_is_undone_leaves_no_trace() {
        let (mut pool, mut memory) = pool(256);
        let a = pool.take(40 * MIB, 1, &mut memory).unwrap();
        pool.undo_take(a, 40 * MIB);
        pool.release(0, &mut memory);
        assert_eq!((pool.used, pool.live, memory.used), (0, 0, 0));
        let a = pool.take(MIB, 1, &mut memory).unwrap();
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
                0..3 => blocks.extend(pool.take(bytes, stream, &mut memory).map(|a| (a, bytes))),
                3 | 4 if !blocks.is_empty() => {
                    let (a, bytes) = blocks.swap_remove(number as usize % blocks.len());
                    pool.free_after(a, bytes, stream, step);
                    pool.free_happened(stream, step);
                }
                5 if !blocks.is_empty() => {
                    let (a, bytes) = blocks.swap_remove(number as usize % blocks.len());
                    pool.undo_take(a, bytes);
                }
                _ => {
                    pool.observe(|of| (of == stream).then_some(step));
                    pool.release(100 * MIB, &mut memory);
                }
            }
            assert_eq!(pool.reserved, memory.used);
            assert_eq!(
                pool.used,
                blocks.iter().map(|(_, bytes)| bytes).sum::<u64>()
            );
            for (number, chunk) in &pool.chunks {
                let empty = pool.gaps.contains(number * CHUNK, CHUNK);
                assert_eq!(empty, chunk.blocks == 0);
                assert_eq!(empty, pool.empty.contains(number));
            }
        }
        for (a, bytes) in blocks {
            pool.undo_take(a, bytes);
        }
        pool.observe(|_| Some(u64::MAX));
        pool.release(0, &mut memory);
        assert_eq!((pool.reserved, memory.used, pool.live), (0, 0, 0));
        assert!(pool.gaps.contains(0, 1 << 40));
    }
}
