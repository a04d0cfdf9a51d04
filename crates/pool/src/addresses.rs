//! The virtual page allocator: runs of pages out of reserved address ranges.
//!
//! Best fit over extents that coalesce, but not across two reservations: a mapping must lie within one. Addresses are
//! plentiful, so reservations are kept until the pool is destroyed.

use crate::driver::Driver;
use crate::size::PAGE;
use std::collections::{BTreeMap, BTreeSet};

/// What is reserved at once, where the driver permits it.
const CHUNK: u64 = 1 << 40;

#[derive(Debug, Default)]
pub(crate) struct Addresses {
    /// Reservations: start and bytes.
    chunks: BTreeMap<u64, u64>,
    /// Free extents: start and bytes.
    free: BTreeMap<u64, u64>,
    /// The same as bytes and start.
    by_size: BTreeSet<(u64, u64)>,
}

impl Addresses {
    /// Returns the address of a run of free pages.
    pub(crate) fn allocate<D: Driver>(&mut self, driver: &D, pages: u64) -> Result<u64, D::Error> {
        let bytes = pages.checked_mul(PAGE).unwrap_or(!(PAGE - 1));
        let found = self.by_size.range((bytes, 0)..).next().copied();
        let (length, start) = match found {
            Some(extent) => extent,
            None => self.reserve(driver, bytes)?,
        };
        self.remove(start, length);
        if length > bytes {
            self.insert(start + bytes, length - bytes);
        }
        Ok(start)
    }

    /// Frees a run of pages.
    pub(crate) fn free(&mut self, mut start: u64, pages: u64) {
        let mut bytes = pages * PAGE;
        let end = start + bytes;
        if !self.chunks.contains_key(&end)
            && let Some(&length) = self.free.get(&end)
        {
            self.remove(end, length);
            bytes += length;
        }
        if !self.chunks.contains_key(&start)
            && let Some((&before, &length)) = self.free.range(..start).next_back()
            && before + length == start
        {
            self.remove(before, length);
            start = before;
            bytes += length;
        }
        self.insert(start, bytes);
    }

    /// Frees every reservation in which no page is in use. Returns the first error.
    pub(crate) fn unreserve_all<D: Driver>(&mut self, driver: &D) -> Result<(), D::Error> {
        let mut result = Ok(());
        let chunks: Vec<_> = self
            .chunks
            .iter()
            .map(|(&start, &bytes)| (start, bytes))
            .collect();
        for (start, bytes) in chunks {
            if self.free.get(&start) != Some(&bytes) {
                continue;
            }
            match driver.unreserve(start, bytes) {
                Ok(()) => {
                    self.remove(start, bytes);
                    self.chunks.remove(&start);
                }
                Err(error) => result = result.and(Err(error)),
            }
        }
        result
    }

    /// Reserved bytes of addresses.
    pub(crate) fn reserved(&self) -> u64 {
        self.chunks.values().sum()
    }

    fn reserve<D: Driver>(&mut self, driver: &D, bytes: u64) -> Result<(u64, u64), D::Error> {
        let mut chunk = CHUNK.max(bytes);
        let start = loop {
            match driver.reserve(chunk) {
                Ok(start) => break start,
                Err(error) if chunk <= bytes => return Err(error),
                Err(_) => chunk = (chunk / 4).next_multiple_of(PAGE).max(bytes),
            }
        };
        self.chunks.insert(start, chunk);
        self.insert(start, chunk);
        Ok((chunk, start))
    }

    fn insert(&mut self, start: u64, bytes: u64) {
        self.free.insert(start, bytes);
        self.by_size.insert((bytes, start));
    }

    fn remove(&mut self, start: u64, bytes: u64) {
        self.free.remove(&start);
        self.by_size.remove(&(bytes, start));
    }
}
