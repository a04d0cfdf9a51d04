//! What each address belongs to: device memory, mapped physical memory, and host memory that the
//! driver knows.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cuguard_sys::CUresult;

use super::address_space::is_device_address;
use super::advice::Advice;
use super::block::MemoryBlock;
use super::device_memory::to_pages;
use super::extent::Span;
use super::freed_ranges::FreedRanges;
use crate::handle::Id;
use crate::result::{DriverResult, valid};

/// How a range was allocated, which is also how it must be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryKind {
    /// `cuMemAlloc`
    Device,
    /// A variable of a module, freed with it.
    Variable,
    /// `cuMemAllocAsync`, from this pool.
    Pool(Id),
    /// A graph that allocates.
    Graph,
    /// `cuMemMap` of this physical handle; `accessible` after `cuMemSetAccess`.
    Mapping { physical: Id, accessible: bool },
    /// `cuMemHostAlloc`
    Pinned,
    /// `cuMemHostRegister`
    Registered,
    /// `cuMemAllocManaged`
    Managed,
}

#[derive(Debug)]
pub(crate) struct MemoryRange {
    pub(crate) base: u64,
    pub(crate) size: u64,
    pub(crate) kind: MemoryKind,
    /// The context that owns it. Stream-ordered memory and mappings belong to the device.
    pub(crate) context: Option<Id>,
    pub(crate) device: u32,
    /// `CU_MEMHOSTALLOC_*`, `CU_MEMHOSTREGISTER_*`
    pub(crate) flags: u32,
    /// Unique over the life of the process.
    pub(crate) id: u64,
    /// For stream-ordered memory: the stream, and the number of the work there that allocates.
    pub(crate) allocated_at: Option<(Id, u64)>,
    /// For memory whose free was submitted to a stream: the number of the last launch of a kernel before that.
    pub(crate) freed_after: u64,
    /// For memory of a managed pool. (Memory of `cuMemAllocManaged` is so by its kind.)
    pub(crate) from_managed_pool: bool,
    /// `SYNC_MEMOPS`
    pub(crate) sync_memops: bool,
    /// For managed memory.
    pub(crate) advice: Advice,
    pub(crate) block: Arc<MemoryBlock>,
}

impl MemoryRange {
    /// A range of no context. It gets its id when it is added to the state.
    pub(crate) fn new(
        base: u64,
        size: u64,
        kind: MemoryKind,
        device: u32,
        block: Arc<MemoryBlock>,
    ) -> Self {
        Self {
            base,
            size,
            kind,
            context: None,
            device,
            flags: 0,
            id: 0,
            allocated_at: None,
            freed_after: 0,
            from_managed_pool: false,
            sync_memops: kind == MemoryKind::Managed,
            advice: Advice::default(),
            block,
        }
    }

    pub(crate) fn end(&self) -> u64 {
        self.base + self.size
    }

    pub(crate) fn contains(&self, address: u64) -> bool {
        (self.base..self.end()).contains(&address)
    }

    /// Whether the host can access the address.
    pub(crate) fn on_host(&self) -> bool {
        !is_device_address(self.base)
    }

    /// Whether host and device share it, and it moves between them.
    pub(crate) fn is_managed(&self) -> bool {
        self.kind == MemoryKind::Managed || self.from_managed_pool
    }

    /// Whether it is memory of a pool of host memory.
    pub(crate) fn is_from_host_pool(&self) -> bool {
        matches!(self.kind, MemoryKind::Pool(_)) && self.on_host() && !self.is_managed()
    }

    /// Whether it is page-locked host memory: pinned or registered.
    pub(crate) fn is_pinned(&self) -> bool {
        matches!(self.kind, MemoryKind::Pinned | MemoryKind::Registered)
    }
}

/// All ranges, by base address. They never overlap.
#[derive(Debug, Default)]
pub(crate) struct AddressMap {
    ranges: BTreeMap<u64, MemoryRange>,
    /// (context, base), so that the end of a context does not depend on the number of all ranges.
    by_context: BTreeSet<(Id, u64)>,
    /// Device addresses that were freed.
    freed: FreedRanges,
    /// By device, the bytes of managed memory that device work has used, in whole pages.
    resident: Vec<AtomicU64>,
}

impl AddressMap {
    pub(crate) fn new(devices: u32) -> Self {
        Self {
            resident: (0..devices).map(|_| AtomicU64::new(0)).collect(),
            ..Self::default()
        }
    }

    /// Adds a range, which must not overlap another.
    pub(crate) fn insert(&mut self, range: MemoryRange) {
        // Not a matter of memory safety: a span is checked against the block of its range.
        debug_assert!(!self.overlaps(range.base, range.size), "ranges overlap");
        let owned = range.context.map(|context| (context, range.base));
        self.by_context.extend(owned);
        if !range.on_host() {
            self.freed.remove(range.base, range.end());
        }
        self.ranges.insert(range.base, range);
    }

    /// Removes the range with this base.
    pub(crate) fn remove(&mut self, base: u64) -> Option<MemoryRange> {
        let range = self.ranges.remove(&base)?;
        if !range.on_host() {
            self.freed.add(base, range.end());
        }
        if let Some(context) = range.context {
            self.by_context.remove(&(context, base));
        }
        if range.kind == MemoryKind::Managed && range.block.was_used() {
            let pages = to_pages(range.size).unwrap_or(range.size);
            self.resident[range.device as usize].fetch_sub(pages, Ordering::Relaxed);
        }
        Some(range)
    }

    /// Removes all ranges of a context.
    pub(crate) fn remove_context(&mut self, context: Id) -> Vec<MemoryRange> {
        let owned = self.by_context.range((context, 0)..=(context, u64::MAX));
        let bases: Vec<_> = owned.map(|(_, base)| *base).collect();
        let removed = bases.into_iter().filter_map(|base| self.remove(base));
        removed.collect()
    }

    pub(crate) fn ranges(&self) -> impl Iterator<Item = &MemoryRange> {
        self.ranges.values()
    }

    /// The range with this base.
    pub(crate) fn at(&self, base: u64) -> Option<&MemoryRange> {
        self.ranges.get(&base)
    }

    pub(crate) fn at_mut(&mut self, base: u64) -> Option<&mut MemoryRange> {
        self.ranges.get_mut(&base)
    }

    /// The range that contains an address.
    pub(crate) fn find(&self, address: u64) -> Option<&MemoryRange> {
        let (_, range) = self.ranges.range(..=address).next_back()?;
        (address < range.end()).then_some(range)
    }

    /// The start of the freed range of device addresses that an address is in.
    pub(crate) fn find_freed(&self, address: u64) -> Option<u64> {
        self.freed.find(address)
    }

    /// The ranges that overlap this one.
    pub(crate) fn overlapping(&self, base: u64, size: u64) -> impl Iterator<Item = &MemoryRange> {
        let before = self.find(base).filter(|range| range.base < base);
        let within = self.ranges.range(base..base.saturating_add(size));
        before.into_iter().chain(within.map(|(_, range)| range))
    }

    pub(crate) fn overlaps(&self, base: u64, size: u64) -> bool {
        self.overlapping(base, size).next().is_some()
    }

    /// The bytes of managed memory that a device has used.
    pub(crate) fn resident_managed(&self, device: u32) -> u64 {
        self.resident[device as usize].load(Ordering::Relaxed)
    }

    /// Device work uses a range: managed memory moves to the device.
    pub(crate) fn note_use(&self, range: &MemoryRange) {
        if range.kind == MemoryKind::Managed && range.block.mark_used() {
            let pages = to_pages(range.size).unwrap_or(range.size);
            self.resident[range.device as usize].fetch_add(pages, Ordering::Relaxed);
        }
    }

    /// The last range that starts below an address, and the first at or above it.
    pub(crate) fn neighbors(&self, address: u64) -> [Option<&MemoryRange>; 2] {
        let below = self.ranges.range(..address).next_back();
        let above = self.ranges.range(address..).next();
        [below, above].map(|found| found.map(|(_, range)| range))
    }

    /// The bytes from `address`, all of which must belong to one range, or to adjacent mappings.
    pub(crate) fn spans(&self, address: u64, len: usize) -> DriverResult<Vec<Span>> {
        let mut spans = Vec::with_capacity(1);
        let mut at = address;
        let mut left = len;
        while left > 0 {
            let range = self.find(at).ok_or(CUresult::INVALID_VALUE)?;
            let in_range = (range.end() - at).min(left as u64) as usize;
            valid(match range.kind {
                MemoryKind::Mapping { accessible, .. } => accessible,
                // An access must not continue from one allocation into an adjacent one.
                _ => spans.is_empty() && in_range == left,
            })?;
            self.note_use(range);
            spans.push(Span::within(
                &range.block,
                (at - range.base) as usize,
                in_range,
            ));
            at += in_range as u64;
            left -= in_range;
        }
        Ok(spans)
    }
}

#[cfg(test)]
mod tests {
    use super::super::address_space::BASE;
    use super::*;

    fn range(base: u64, size: u64, kind: MemoryKind, context: Id) -> MemoryRange {
        MemoryRange {
            context: Some(context),
            id: base,
            ..MemoryRange::new(
                base,
                size,
                kind,
                0,
                MemoryBlock::allocate(size as usize).unwrap(),
            )
        }
    }

    #[test]
    fn what_overlaps_is_found_from_both_sides() {
        let mut map = AddressMap::new(1);
        map.insert(range(100, 50, MemoryKind::Device, 1));
        map.insert(range(200, 50, MemoryKind::Device, 1));
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
    fn freed_device_addresses_are_known_until_they_are_allocated_again() {
        let mut map = AddressMap::new(1);
        let base = BASE + 4096;
        map.insert(range(base, 1000, MemoryKind::Device, 1));
        map.insert(range(0x1000, 100, MemoryKind::Pinned, 1));
        assert_eq!(map.find_freed(base), None);
        map.remove_context(1);
        assert_eq!(map.find_freed(base + 999), Some(base));
        assert_eq!(map.find_freed(base - 1), None);
        assert_eq!(map.find_freed(base + 1000), None);
        assert_eq!(map.find_freed(0x1000), None);
        map.insert(range(base, 10, MemoryKind::Device, 1));
        assert_eq!(map.find_freed(base), None);
        assert_eq!(map.find_freed(base + 10), Some(base));
    }

    #[test]
    fn contexts_and_resident_bytes_follow_the_ranges() {
        let mut map = AddressMap::new(1);
        map.insert(range(0x1000, 5000, MemoryKind::Managed, 1));
        map.insert(range(0x8000, 10, MemoryKind::Pinned, 2));
        assert_eq!(map.resident_managed(0), 0);
        map.spans(0x1000, 1).unwrap();
        map.spans(0x1001, 10).unwrap();
        assert_eq!(map.resident_managed(0), crate::PAGE);
        let sizes = |map: &AddressMap| map.ranges().map(|r| r.size).collect::<Vec<_>>();
        assert_eq!(sizes(&map), [5000, 10]);
        let removed = map.remove_context(1);
        assert_eq!(removed.len(), 1);
        assert_eq!(map.resident_managed(0), 0);
        assert_eq!(sizes(&map), [10]);
        assert!(map.remove_context(1).is_empty());
    }
}
