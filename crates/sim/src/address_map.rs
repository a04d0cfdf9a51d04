//! What every address belongs to: device memory, mapped physical memory, and host memory that
//! the driver knows of.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cuguard_sys::CUresult;

use crate::area::Span;
use crate::counters::Counters;
use crate::handle::Id;
use crate::memory_block::MemoryBlock;
use crate::physical::to_pages;

/// How a range came to be, which is also how it must be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// `cuMemAlloc`
    Device,
    /// `cuMemAllocAsync`, from this pool.
    Pool(Id),
    /// `cuMemMap` of this physical handle; whether `cuMemSetAccess` has allowed its use.
    Mapping { physical: Id, accessible: bool },
    /// `cuMemHostAlloc`
    Pinned,
    /// `cuMemHostRegister`
    Registered,
    /// `cuMemAllocManaged`
    Managed,
}

#[derive(Debug)]
pub(crate) struct Range {
    pub(crate) base: u64,
    pub(crate) size: u64,
    pub(crate) origin: Origin,
    /// The context it goes down with. Pools and mappings belong to the device alone.
    pub(crate) context: Option<Id>,
    pub(crate) device: u32,
    /// `CU_MEMHOSTALLOC_*`, `CU_MEMHOSTREGISTER_*`
    pub(crate) flags: u32,
    /// Unique over the life of the process.
    pub(crate) id: u64,
    /// Of stream-ordered memory: the stream and the piece of work on it that allocate.
    pub(crate) born: Option<(Id, u64)>,
    pub(crate) block: Arc<MemoryBlock>,
}

impl Range {
    fn end(&self) -> u64 {
        self.base + self.size
    }

    /// Whether the host can use the address as it is.
    pub(crate) fn on_host(&self) -> bool {
        matches!(
            self.origin,
            Origin::Pinned | Origin::Registered | Origin::Managed
        )
    }
}

/// All ranges, by their first address. They never overlap.
#[derive(Debug, Default)]
pub(crate) struct AddressMap {
    ranges: BTreeMap<u64, Range>,
    by_context: HashMap<Id, BTreeSet<u64>>,
    /// By device, the bytes of managed memory that device work has used, in whole pages.
    resident: Vec<AtomicU64>,
    /// The tallies of what is in here; the rest of it stays empty.
    counts: Counters,
}

impl AddressMap {
    pub(crate) fn new(devices: u32) -> Self {
        Self {
            resident: (0..devices).map(|_| AtomicU64::new(0)).collect(),
            ..Self::default()
        }
    }

    /// Enters a range, which must not overlap with any that is there.
    pub(crate) fn insert(&mut self, range: Range) {
        // Not for memory safety: a span is checked against the block of the range that it is in.
        debug_assert!(
            !self.overlaps(range.base, range.size),
            "two ranges at one address"
        );
        if let Some(tally) = self.counts.of_origin(range.origin) {
            tally.add(range.size);
        }
        if let Some(context) = range.context {
            self.by_context
                .entry(context)
                .or_default()
                .insert(range.base);
        }
        self.ranges.insert(range.base, range);
    }

    /// Takes the range that begins at an address out of the map.
    pub(crate) fn remove(&mut self, base: u64) -> Option<Range> {
        let range = self.ranges.remove(&base)?;
        if let Some(tally) = self.counts.of_origin(range.origin) {
            tally.subtract(range.size);
        }
        if let Some(context) = range.context
            && let Some(bases) = self.by_context.get_mut(&context)
        {
            bases.remove(&base);
            if bases.is_empty() {
                self.by_context.remove(&context);
            }
        }
        if range.origin == Origin::Managed && range.block.was_used() {
            let pages = to_pages(range.size).unwrap_or(range.size);
            self.resident[range.device as usize].fetch_sub(pages, Ordering::Relaxed);
        }
        Some(range)
    }

    /// Takes all ranges of a context out of the map.
    pub(crate) fn remove_context(&mut self, context: Id) -> Vec<Range> {
        let bases = self.by_context.get(&context).cloned().unwrap_or_default();
        bases.iter().filter_map(|base| self.remove(*base)).collect()
    }

    /// The range that begins at an address.
    pub(crate) fn at(&self, base: u64) -> Option<&Range> {
        self.ranges.get(&base)
    }

    pub(crate) fn at_mut(&mut self, base: u64) -> Option<&mut Range> {
        self.ranges.get_mut(&base)
    }

    /// The range that an address lies in.
    pub(crate) fn find(&self, address: u64) -> Option<&Range> {
        let (_, range) = self.ranges.range(..=address).next_back()?;
        (address < range.end()).then_some(range)
    }

    /// The ranges that have a byte in common with this one.
    pub(crate) fn overlapping(&self, base: u64, size: u64) -> impl Iterator<Item = &Range> {
        let before = self.find(base).filter(|range| range.base < base);
        let from = base..base.saturating_add(size);
        before
            .into_iter()
            .chain(self.ranges.range(from).map(|(_, range)| range))
    }

    pub(crate) fn overlaps(&self, base: u64, size: u64) -> bool {
        self.overlapping(base, size).next().is_some()
    }

    /// The bytes of managed memory that a device has used.
    pub(crate) fn resident_managed(&self, device: u32) -> u64 {
        self.resident[device as usize].load(Ordering::Relaxed)
    }

    /// Adds what is in here to the counters.
    pub(crate) fn count_into(&self, counters: &mut Counters) {
        counters.device = self.counts.device;
        counters.pooled = self.counts.pooled;
        counters.pinned = self.counts.pinned;
        counters.registered = self.counts.registered;
        counters.managed = self.counts.managed;
    }

    /// The bytes from `address`, all of which must belong to one range, or to mappings that lie
    /// side by side.
    pub(crate) fn spans(&self, address: u64, len: usize) -> Result<Vec<Span>, CUresult> {
        let mut spans = Vec::with_capacity(1);
        let mut at = address;
        let mut left = len;
        while left > 0 {
            let range = self.find(at).ok_or(CUresult::INVALID_VALUE)?;
            match range.origin {
                Origin::Mapping {
                    accessible: true, ..
                } => {}
                Origin::Mapping { .. } => return Err(CUresult::INVALID_VALUE),
                // One allocation does not continue in the next, even where they touch.
                _ if !spans.is_empty() => return Err(CUresult::INVALID_VALUE),
                _ if (range.end() - at) < left as u64 => return Err(CUresult::INVALID_VALUE),
                _ => {}
            }
            if range.origin == Origin::Managed && range.block.mark_used() {
                let pages = to_pages(range.size).unwrap_or(range.size);
                self.resident[range.device as usize].fetch_add(pages, Ordering::Relaxed);
            }
            let len = left.min((range.end() - at) as usize);
            spans.push(Span::within(&range.block, (at - range.base) as usize, len));
            at += len as u64;
            left -= len;
        }
        Ok(spans)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(base: u64, size: u64, origin: Origin, context: Id) -> Range {
        Range {
            base,
            size,
            origin,
            context: Some(context),
            device: 0,
            flags: 0,
            id: base,
            born: None,
            block: MemoryBlock::fresh(size as usize).unwrap(),
        }
    }

    #[test]
    fn what_overlaps_is_found_from_both_sides() {
        let mut map = AddressMap::new(1);
        map.insert(range(100, 50, Origin::Device, 1));
        map.insert(range(200, 50, Origin::Device, 1));
        let bases =
            |base, size| -> Vec<u64> { map.overlapping(base, size).map(|r| r.base).collect() };
        assert_eq!(bases(0, 100), []);
        assert_eq!(bases(150, 50), []);
        assert_eq!(bases(149, 1), [100]);
        assert_eq!(bases(0, 1000), [100, 200]);
        assert_eq!(bases(120, 81), [100, 200]);
        assert_eq!(bases(249, u64::MAX), [200]);
    }

    #[test]
    fn tallies_contexts_and_resident_bytes_follow_the_ranges() {
        let mut map = AddressMap::new(1);
        map.insert(range(0x1000, 5000, Origin::Managed, 1));
        map.insert(range(0x8000, 10, Origin::Pinned, 2));
        assert_eq!(map.resident_managed(0), 0);
        map.spans(0x1000, 1).unwrap();
        map.spans(0x1001, 10).unwrap();
        assert_eq!(map.resident_managed(0), crate::PAGE);
        let mut counters = Counters::default();
        map.count_into(&mut counters);
        assert_eq!((counters.managed.bytes, counters.pinned.bytes), (5000, 10));
        let gone = map.remove_context(1);
        assert_eq!(gone.len(), 1);
        assert_eq!(map.resident_managed(0), 0);
        map.count_into(&mut counters);
        assert_eq!((counters.managed.count, counters.pinned.count), (0, 1));
        assert!(map.remove_context(1).is_empty());
    }
}
