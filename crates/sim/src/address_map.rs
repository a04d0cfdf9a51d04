//! What every address belongs to: device memory, mapped physical memory, and host memory that
//! the driver knows of.

use std::collections::BTreeMap;
use std::sync::Arc;

use cuguard_sys::CUresult;

use crate::memory_block::{Address, MemoryBlock, Span};

/// Where simulated device addresses begin. No program on a 48-bit machine can have memory of its
/// own here, so a device address that is read by the host by mistake faults, as it should.
pub(crate) const DEVICE_BASE: u64 = 1 << 49;
/// How many device addresses there are.
pub(crate) const DEVICE_SPAN: u64 = 1 << 48;

/// How a range came to be, which is also how it must be freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// `cuMemAlloc`
    Device,
    /// `cuMemAllocAsync`, from this pool.
    Pool(u32),
    /// `cuMemMap` of this physical handle; whether `cuMemSetAccess` has allowed its use.
    Mapping { physical: u32, accessible: bool },
    /// `cuMemHostAlloc`
    Pinned,
    /// `cuMemHostRegister`
    Registered,
    /// `cuMemAllocManaged`
    Managed,
}

#[derive(Clone, Debug)]
pub(crate) struct Range {
    pub(crate) base: u64,
    pub(crate) size: u64,
    pub(crate) origin: Origin,
    /// The context it goes down with. Pools and mappings belong to the device alone.
    pub(crate) context: Option<u32>,
    pub(crate) device: u32,
    /// `CU_MEMHOSTALLOC_*`, `CU_MEMHOSTREGISTER_*`
    pub(crate) flags: u32,
    /// Unique over the life of the process.
    pub(crate) id: u64,
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
}

impl AddressMap {
    pub(crate) fn insert(&mut self, range: Range) {
        let before = self.ranges.insert(range.base, range);
        debug_assert!(before.is_none(), "two ranges at one address");
    }

    /// Takes the range that begins at an address out of the map.
    pub(crate) fn remove(&mut self, base: u64) -> Option<Range> {
        self.ranges.remove(&base)
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

    /// Whether any range has a byte in common with this one.
    pub(crate) fn overlaps(&self, base: u64, size: u64) -> bool {
        self.ranges
            .range(..base.saturating_add(size))
            .next_back()
            .is_some_and(|(_, range)| range.end() > base)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Range> {
        self.ranges.values()
    }

    /// Takes all ranges for which `gone` holds out of the map.
    pub(crate) fn remove_where(&mut self, gone: impl Fn(&Range) -> bool) -> Vec<Range> {
        let bases: Vec<u64> = self.iter().filter(|r| gone(r)).map(|r| r.base).collect();
        bases.iter().filter_map(|base| self.remove(*base)).collect()
    }

    /// The bytes from `address`, all of which must belong to one range, or to mappings that lie
    /// side by side.
    pub(crate) fn span(&self, address: u64, len: usize) -> Result<Vec<Span>, CUresult> {
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
            let len = left.min((range.end() - at) as usize);
            spans.push(Span::within(&range.block, (at - range.base) as usize, len));
            at += len as u64;
            left -= len;
        }
        Ok(spans)
    }

    /// As [`span`](Self::span), but memory that the driver does not know of is pageable host
    /// memory, whose length nobody can check. Says which of the two it was.
    pub(crate) fn span_or_pageable(
        &self,
        address: u64,
        len: usize,
    ) -> Result<(Vec<Span>, bool), CUresult> {
        if self.find(address).is_some() || is_device_address(address) {
            return Ok((self.span(address, len)?, false));
        }
        let start = Address::new(address as *mut u8).ok_or(CUresult::INVALID_VALUE)?;
        Ok((vec![Span::pageable(start, len)], true))
    }
}

pub(crate) fn is_device_address(address: u64) -> bool {
    (DEVICE_BASE..DEVICE_BASE + DEVICE_SPAN).contains(&address)
}
