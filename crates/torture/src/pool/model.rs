//! What the pools must hold, by the sizes of their blocks.

use std::collections::BTreeMap;

use crate::mismatch::{Check, Stop, ensure};

pub const PAGE: u64 = 2 << 20;
const GRANULE: u64 = 16 << 10;

/// What a block of this size occupies: multiples of 512 bytes up to 4 KiB, eight steps a doubling up to 64 KiB, then
/// multiples of 16 KiB.
pub fn rounded(bytes: u64) -> u64 {
    let unit = match bytes {
        0..=4096 => 512,
        4097..=65_536 => (1 << (bytes - 1).ilog2()) / 8,
        _ => GRANULE,
    };
    bytes.div_ceil(unit) * unit
}

/// The most physical memory that a block needs after compaction: its pages, where no page is shared.
fn most_pages(bytes: u64) -> u64 {
    rounded(bytes).div_ceil(PAGE) * PAGE
}

/// A block, whoever owns it.
#[derive(Clone, Copy, Debug)]
struct Entry {
    bytes: u64,
    pool: u64,
}

/// All blocks by address.
#[derive(Debug, Default)]
pub struct Model {
    blocks: BTreeMap<u64, Entry>,
}

impl Model {
    /// A block was allocated: it must overlap with no other.
    pub fn allocated(&mut self, address: u64, bytes: u64, pool: u64) -> Check {
        ensure(address != 0 && address.is_multiple_of(512), || {
            format!("a block of {bytes} bytes at {address:#x}")
        })?;
        let end = address + rounded(bytes);
        let before = self.blocks.range(..end).next_back();
        if let Some((other, entry)) = before
            && other + rounded(entry.bytes) > address
        {
            return Err(Stop::Mismatch(format!(
                "{bytes} bytes at {address:#x} overlap with {} bytes at {other:#x}",
                entry.bytes
            )));
        }
        self.blocks.insert(address, Entry { bytes, pool });
        Ok(())
    }

    pub fn freed(&mut self, address: u64) {
        self.blocks.remove(&address).expect("a block of the model");
    }

    /// The count and the bytes of all blocks: the registry counts those that escaped, too.
    pub fn live(&self) -> (u64, u64) {
        let blocks = self.blocks.values();
        blocks.fold((0, 0), |(count, bytes), entry| {
            (count + 1, bytes + entry.bytes)
        })
    }

    /// All bytes, rounded.
    pub fn total(&self) -> u64 {
        self.blocks.values().map(|entry| rounded(entry.bytes)).sum()
    }

    fn of(&self, pool: u64) -> impl Iterator<Item = &Entry> {
        self.blocks.values().filter(move |entry| entry.pool == pool)
    }

    /// What the blocks of a pool occupy.
    pub fn used(&self, pool: u64) -> u64 {
        self.of(pool).map(|entry| rounded(entry.bytes)).sum()
    }

    /// Whether a pool with this limit may refuse a block: if it fits even where no two blocks share a page, it may not.
    pub fn may_refuse(&self, pool: u64, limit: u64, bytes: u64) -> bool {
        // A thread has batches of free small blocks until memory runs short, then the pool has them.
        let taken: u64 = self.of(pool).map(|entry| most_pages(entry.bytes)).sum();
        taken + most_pages(bytes) > limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_as_the_pool_documents_it() {
        let expected = [
            (1, 512),
            (512, 512),
            (513, 1024),
            (2049, 2560),
            (4096, 4096),
            (4097, 4608),
            (65_536, 65_536),
            (65_537, 81_920),
            ((2 << 20) + 1, (2 << 20) + GRANULE),
        ];
        for (bytes, size) in expected {
            assert_eq!(rounded(bytes), size, "{bytes}");
        }
    }

    #[test]
    fn an_overlap_is_found() {
        let mut model = Model::default();
        model.allocated(0x1000, 1000, 1).unwrap();
        model.allocated(0x1400, 1000, 1).unwrap();
        assert!(model.allocated(0x1200, 1, 1).is_err());
        assert!(model.allocated(0xe00, 513, 2).is_err());
        model.freed(0x1000);
        model.allocated(0x1200, 1, 1).unwrap();
        assert_eq!(model.live(), (2, 1001));
    }
}
