//! A memory pool: where stream-ordered allocations come from. Pure bookkeeping of offsets.
//!
//! Measured on a real GPU: a pool takes memory in chunks of 32 MiB and packs blocks into them
//! one after the other, also across the border of two chunks. A chunk goes back only when no
//! block touches it, and only when the host waits (for the stream, one of its events or the
//! context) or asks for it. A block that was freed is used again at once by its own stream, and
//! by others when the free has happened.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::PAGE;
use crate::gaps::Gaps;
use crate::physical::{DeviceMemory, UNIT};

/// What a pool takes from the device at a time.
pub(crate) const CHUNK: u64 = 32 << 20;
/// The addresses that a pool has for itself: far more than a device has memory.
pub(crate) const POOL_SPAN: u64 = 1 << 42;

/// A free that was asked for and that the host has not yet seen happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Freed {
    len: u64,
    offset: u64,
    /// The piece of work on the stream after which the block is free.
    work: u64,
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
    gaps: Gaps,
    freed: BTreeMap<u32, BTreeSet<Freed>>,
    /// Chunk number → bytes taken from the device, from the chunk's beginning. Less than
    /// [`CHUNK`] only where the device had no more.
    chunks: BTreeMap<u64, u64>,
}

impl Pool {
    pub(crate) fn new(device: u32, base: u64) -> Self {
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
            gaps: Gaps::new(0, POOL_SPAN),
            freed: BTreeMap::new(),
            chunks: BTreeMap::new(),
        }
    }

    /// The bytes taken from the device.
    pub(crate) fn reserved(&self) -> u64 {
        self.chunks.values().sum()
    }

    /// An address for `bytes`, for work on `stream`. `done(stream, work)` tells whether a piece
    /// of work has happened.
    pub(crate) fn take(
        &mut self,
        bytes: u64,
        stream: u32,
        memory: &mut DeviceMemory,
        done: impl Fn(u32, u64) -> bool,
    ) -> Option<u64> {
        let len = bytes
            .checked_next_multiple_of(UNIT)
            .filter(|len| *len <= POOL_SPAN)?;
        let offset = match self.reuse(len, stream, done) {
            Some(offset) => offset,
            None => {
                let offset = self.gaps.take(len, UNIT)?;
                if !self.reserve(offset, len, memory) {
                    self.gaps.give(offset, len);
                    return None;
                }
                offset
            }
        };
        self.live += 1;
        self.used += bytes;
        self.used_high = self.used_high.max(self.used);
        self.reserved_high = self.reserved_high.max(self.reserved());
        Some(self.base + offset)
    }

    /// A block that was freed on the same stream, or whose free has happened.
    fn reuse(&mut self, len: u64, stream: u32, done: impl Fn(u32, u64) -> bool) -> Option<u64> {
        let fits = Freed {
            len,
            offset: 0,
            work: 0,
        };
        let opportunistic = self.reuse[1];
        let (owner, block) = self
            .freed
            .iter()
            .filter_map(|(owner, blocks)| {
                let mut fitting = blocks.range(fits..);
                let block = fitting
                    .find(|b| *owner == stream || (opportunistic && done(*owner, b.work)))?;
                Some((*owner, *block))
            })
            .min_by_key(|(_, block)| (block.len, block.offset))?;
        let blocks = self.freed.get_mut(&owner)?;
        blocks.remove(&block);
        if block.len > len {
            blocks.insert(Freed {
                len: block.len - len,
                offset: block.offset + len,
                work: block.work,
            });
        }
        Some(block.offset)
    }

    /// Makes sure that there is memory behind a range.
    fn reserve(&mut self, offset: u64, len: u64, memory: &mut DeviceMemory) -> bool {
        let mut grown = Vec::new();
        for chunk in offset / CHUNK..=(offset + len - 1) / CHUNK {
            let have = self.chunks.get(&chunk).copied().unwrap_or(0);
            let needed = (offset + len - chunk * CHUNK)
                .min(CHUNK)
                .next_multiple_of(PAGE);
            if have >= needed {
                continue;
            }
            // The whole chunk if the device has as much, else what this block needs.
            let size = if memory.take(CHUNK - have) {
                CHUNK
            } else if memory.take(needed - have) {
                needed
            } else {
                for (chunk, before) in grown {
                    memory.give(self.chunks[&chunk] - before);
                    if before == 0 {
                        self.chunks.remove(&chunk);
                    } else {
                        self.chunks.insert(chunk, before);
                    }
                }
                return false;
            };
            self.chunks.insert(chunk, size);
            grown.push((chunk, have));
        }
        true
    }

    /// Notes that a block will be free after a piece of work.
    pub(crate) fn free_after(&mut self, address: u64, bytes: u64, stream: u32, work: u64) {
        self.live -= 1;
        self.used -= bytes;
        self.freed.entry(stream).or_default().insert(Freed {
            len: bytes.next_multiple_of(UNIT),
            offset: address - self.base,
            work,
        });
    }

    /// Frees a block at once. The real driver does not take it off its count of used bytes.
    pub(crate) fn free_now(&mut self, address: u64, bytes: u64) {
        self.live -= 1;
        self.gaps
            .give(address - self.base, bytes.next_multiple_of(UNIT));
    }

    /// Takes back blocks whose free the host has seen happen: `seen` tells, of a stream, up to
    /// which piece of work, if any.
    pub(crate) fn observe(&mut self, seen: impl Fn(u32) -> Option<u64>) {
        let gaps = &mut self.gaps;
        self.freed.retain(|stream, blocks| {
            if let Some(work) = seen(*stream) {
                blocks.retain(|block| {
                    let happened = block.work <= work;
                    if happened {
                        gaps.give(block.offset, block.len);
                    }
                    !happened
                });
            }
            !blocks.is_empty()
        });
    }

    /// Whether blocks wait for their free to be seen.
    pub(crate) fn has_freed(&self) -> bool {
        !self.freed.is_empty()
    }

    /// Gives empty chunks back, the last ones first, while more than `keep` bytes are reserved.
    pub(crate) fn release(&mut self, keep: u64, memory: &mut DeviceMemory) {
        let mut reserved = self.reserved();
        let gaps = &self.gaps;
        let mut empty: Vec<u64> = self.chunks.keys().copied().collect();
        empty.retain(|chunk| gaps.contains(chunk * CHUNK, CHUNK));
        for chunk in empty.into_iter().rev() {
            let size = self.chunks[&chunk];
            if reserved <= keep || reserved - size < keep {
                break;
            }
            self.chunks.remove(&chunk);
            memory.give(size);
            reserved -= size;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn pool(mib: u64) -> (Pool, DeviceMemory) {
        let memory = DeviceMemory {
            total: mib * MIB,
            used: 0,
        };
        (Pool::new(0, 0), memory)
    }

    #[test]
    fn blocks_lie_across_chunks_and_a_chunk_goes_back_when_nothing_touches_it() {
        let (mut pool, mut memory) = pool(256);
        let mut take = |pool: &mut Pool| pool.take(20 * MIB, 1, &mut memory, |_, _| false).unwrap();
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
        let a = pool.take(MIB, 1, &mut memory, |_, _| false).unwrap();
        pool.free_after(a, MIB, 1, 7);
        let other = pool.take(MIB, 2, &mut memory, |_, _| false).unwrap();
        assert_ne!(other, a);
        let own = pool.take(MIB, 1, &mut memory, |_, _| false).unwrap();
        assert_eq!(own, a);
        pool.free_after(own, MIB, 1, 8);
        assert_eq!(pool.take(MIB, 2, &mut memory, |_, work| work <= 8), Some(a));
    }

    #[test]
    fn the_last_chunk_is_as_small_as_the_device_is_full() {
        let (mut pool, mut memory) = pool(38);
        assert!(pool.take(30 * MIB, 1, &mut memory, |_, _| false).is_some());
        assert!(pool.take(7 * MIB, 1, &mut memory, |_, _| false).is_some());
        assert_eq!((pool.reserved(), memory.free()), (38 * MIB, 0));
        assert_eq!(pool.take(2 * MIB, 1, &mut memory, |_, _| false), None);
        assert_eq!(pool.reserved(), 38 * MIB);
    }

    #[test]
    fn what_is_kept_is_kept() {
        let (mut pool, mut memory) = pool(256);
        let a = pool.take(100 * MIB, 1, &mut memory, |_, _| false).unwrap();
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
}
