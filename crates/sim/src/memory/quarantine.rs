//! Quarantine: the driver's host memory that was freed recently. Its addresses are not reused for a
//! while, so that a use after free is detected and does not corrupt other memory. The addresses of
//! pools of host memory are here all the time, since only what is allocated there may be used.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::block::MemoryBlock;

/// The limits of ranges in quarantine and of their bytes.
const MAX_RANGES: usize = 1024;
const MAX_BYTES: u64 = 64 << 30;

#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    /// Base → size.
    ranges: BTreeMap<u64, u64>,
    order: VecDeque<(u64, Arc<MemoryBlock>)>,
    bytes: u64,
}

impl Quarantine {
    /// Memory is added later, once nothing uses it. Its addresses already count as freed.
    pub(crate) fn expect(&mut self, base: u64, size: u64) {
        self.ranges.insert(base, size);
    }

    /// Adds freed memory; returns what leaves the quarantine.
    pub(crate) fn add(
        &mut self,
        base: u64,
        size: u64,
        block: Arc<MemoryBlock>,
    ) -> Vec<Arc<MemoryBlock>> {
        self.ranges.insert(base, size);
        self.order.push_back((base, block));
        self.bytes += size;
        let mut expired = Vec::new();
        while (self.order.len() > MAX_RANGES || self.bytes > MAX_BYTES)
            && let Some((base, block)) = self.order.pop_front()
        {
            self.bytes -= self.ranges.remove(&base).unwrap_or(0);
            expired.push(block);
        }
        expired
    }

    /// Removes all memory, for its addresses.
    pub(crate) fn clear(&mut self) -> Vec<Arc<MemoryBlock>> {
        self.bytes = 0;
        let order = std::mem::take(&mut self.order).into_iter();
        let removed = order.map(|(base, block)| {
            self.ranges.remove(&base);
            block
        });
        removed.collect()
    }

    /// The base of freed memory that overlaps a range.
    pub(crate) fn find(&self, base: u64, size: u64) -> Option<u64> {
        let before = self.ranges.range(..base.saturating_add(size)).next_back();
        before
            .filter(|(start, len)| **start + **len > base)
            .map(|(start, _)| *start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_thousand_are_remembered() {
        let mut quarantine = Quarantine::default();
        for number in 0..3000 {
            let block = MemoryBlock::allocate(1).unwrap();
            let gone = quarantine.add(number * 10_000, 4096, block);
            assert_eq!(gone.len(), usize::from(number >= 1024));
        }
        assert_eq!(quarantine.find(1975 * 10_000, 1), None);
        assert_eq!(quarantine.find(1976 * 10_000 + 5, 1), Some(1976 * 10_000));
        assert_eq!(quarantine.find(1976 * 10_000 - 5, 6), Some(1976 * 10_000));
        assert_eq!(quarantine.find(1976 * 10_000 + 4096, 4096), None);
        assert_eq!(quarantine.bytes, 1024 * 4096);
    }

    #[test]
    fn what_is_announced_is_known() {
        let mut quarantine = Quarantine::default();
        quarantine.expect(0x1000, 100);
        assert_eq!(quarantine.find(0x1000, 1), Some(0x1000));
        quarantine.add(0x1000, 100, MemoryBlock::allocate(1).unwrap());
        assert_eq!((quarantine.bytes, quarantine.order.len()), (100, 1));
        quarantine.expect(0x2000, 100);
        assert_eq!(quarantine.clear().len(), 1);
        assert_eq!((quarantine.find(0x1000, 1), quarantine.bytes), (None, 0));
        assert_eq!(quarantine.find(0x2000, 1), Some(0x2000));
    }

    #[test]
    fn not_more_addresses_are_kept_than_are_to_spare() {
        let mut quarantine = Quarantine::default();
        for number in 0..10 {
            let block = MemoryBlock::allocate(1).unwrap();
            quarantine.add(number << 40, 20 << 30, block);
        }
        assert_eq!(quarantine.order.len(), 3);
    }
}
