//! The free ranges of a space of numbers: addresses, or offsets within a pool.

use std::collections::{BTreeMap, BTreeSet};

/// Best fit: an allocation gets the smallest free range that is large enough, the lowest among
/// equals, so that a block that is freed and requested again has the same address.
#[derive(Debug, Default)]
pub(crate) struct FreeRanges {
    by_start: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
    /// Ranges are not merged across multiples of this; 0 for no such boundary.
    boundary: u64,
}

impl FreeRanges {
    /// A space with one free range.
    pub(crate) fn new(start: u64, len: u64) -> Self {
        let mut ranges = Self::default();
        ranges.insert(start, len);
        ranges
    }

    /// An empty space whose ranges stay within multiples of `boundary`.
    pub(crate) fn bounded(boundary: u64) -> Self {
        Self {
            boundary,
            ..Self::default()
        }
    }

    fn insert(&mut self, start: u64, len: u64) {
        if len > 0 {
            self.by_start.insert(start, len);
            self.by_size.insert((len, start));
        }
    }

    fn remove(&mut self, start: u64) -> u64 {
        let len = self.by_start.remove(&start).unwrap_or(0);
        self.by_size.remove(&(len, start));
        len
    }

    /// Removes `len` from the free range at `start`, at `at` within it.
    fn split(&mut self, start: u64, at: u64, len: u64) {
        let free = self.remove(start);
        self.insert(start, at - start);
        self.insert(at + len, start + free - at - len);
    }

    /// Allocates `len` at a multiple of `align`.
    pub(crate) fn allocate(&mut self, len: u64, align: u64) -> Option<u64> {
        let (start, at) = self.by_size.range((len, 0)..).find_map(|(size, start)| {
            let at = start.checked_next_multiple_of(align)?;
            (at - start <= size - len).then_some((*start, at))
        })?;
        self.split(start, at, len);
        Some(at)
    }

    /// Frees a range; returns the start and length of the free range that it is now part of.
    pub(crate) fn free(&mut self, mut start: u64, mut len: u64) -> (u64, u64) {
        let boundary = self.boundary;
        let mergeable = |at: u64| boundary == 0 || !at.is_multiple_of(boundary);
        let before = self.free_range_before(start);
        if let Some((before, before_len)) = before.filter(|(s, l)| s + l == start)
            && mergeable(start)
        {
            self.remove(before);
            start = before;
            len += before_len;
        }
        if mergeable(start + len) {
            len += self.remove(start + len);
        }
        self.insert(start, len);
        (start, len)
    }

    /// The free range that starts at `at` or is the last before it.
    fn free_range_before(&self, at: u64) -> Option<(u64, u64)> {
        let (start, len) = self.by_start.range(..=at).next_back()?;
        Some((*start, *len))
    }

    /// Allocates exactly this range, if all of it is free.
    pub(crate) fn allocate_exactly(&mut self, at: u64, len: u64) -> bool {
        let free = self.free_range_before(at);
        let Some((start, _)) = free.filter(|(s, l)| at + len <= s + l) else {
            return false;
        };
        self.split(start, at, len);
        true
    }

    /// Whether all of this range is free.
    #[cfg(test)]
    pub(crate) fn contains(&self, at: u64, len: u64) -> bool {
        let free = self.free_range_before(at);
        free.is_some_and(|(start, size)| at + len <= start + size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_back_is_taken_again() {
        let mut free_ranges = FreeRanges::new(0, 1 << 30);
        let a = free_ranges.allocate(4096, 4096).unwrap();
        let b = free_ranges.allocate(4096, 4096).unwrap();
        let c = free_ranges.allocate(4096, 4096).unwrap();
        free_ranges.free(b, 4096);
        assert_eq!(free_ranges.allocate(4096, 4096), Some(b));
        for start in [c, a, b] {
            free_ranges.free(start, 4096);
        }
        assert!(free_ranges.contains(0, 1 << 30));
    }

    #[test]
    fn alignment_is_kept_and_the_rest_stays_free() {
        let mut free_ranges = FreeRanges::new(100, 10_000);
        assert_eq!(free_ranges.allocate(1000, 512), Some(512));
        assert!(free_ranges.contains(100, 412));
        assert!(free_ranges.contains(1512, 8588));
        assert!(!free_ranges.contains(512, 1));
        assert_eq!(free_ranges.allocate(9000, 1), None);
    }

    #[test]
    fn nothing_grows_together_over_a_boundary() {
        let mut free_ranges = FreeRanges::bounded(1000);
        assert_eq!(free_ranges.free(0, 1000), (0, 1000));
        assert_eq!(free_ranges.free(1000, 1000), (1000, 1000));
        assert_eq!(free_ranges.allocate(1500, 1), None);
        let at = free_ranges.allocate(600, 1).unwrap();
        assert_eq!(free_ranges.free(at, 600), (at, 1000));
    }

    #[test]
    fn an_exact_range_is_taken_only_if_free() {
        let mut free_ranges = FreeRanges::new(0, 100);
        assert!(free_ranges.allocate_exactly(40, 20));
        assert!(!free_ranges.allocate_exactly(50, 20));
        assert!(free_ranges.allocate_exactly(60, 40));
        assert_eq!(free_ranges.free(40, 60), (0, 100));
    }
}
