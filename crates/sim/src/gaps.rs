//! Free ranges of a space of numbers: addresses, or offsets within a pool. Pure bookkeeping.

use std::collections::{BTreeMap, BTreeSet};

/// The free ranges of a space. Taking looks for the smallest range that fits, at the lowest
/// address among equals, so that a block that is freed and asked for again comes back at once.
#[derive(Debug, Default)]
pub(crate) struct Gaps {
    by_start: BTreeMap<u64, u64>,
    by_size: BTreeSet<(u64, u64)>,
    /// Ranges never grow together over a multiple of this; 0: no such boundary.
    boundary: u64,
}

impl Gaps {
    /// A space with one free range.
    pub(crate) fn new(start: u64, len: u64) -> Self {
        let mut gaps = Self::default();
        gaps.insert(start, len);
        gaps
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

    /// Takes `len` at a multiple of `align`.
    pub(crate) fn take(&mut self, len: u64, align: u64) -> Option<u64> {
        let (gap_len, start, at) = self.by_size.range((len, 0)..).find_map(|(size, start)| {
            let at = start.checked_next_multiple_of(align)?;
            (at - start <= size - len).then_some((*size, *start, at))
        })?;
        self.remove(start);
        self.insert(start, at - start);
        self.insert(at + len, start + gap_len - at - len);
        Some(at)
    }

    /// Gives a range back; returns the free range that it is part of now.
    pub(crate) fn give(&mut self, mut start: u64, mut len: u64) -> (u64, u64) {
        let apart = |at: u64| self.boundary != 0 && at.is_multiple_of(self.boundary);
        let before = self.by_start.range(..start).next_back();
        if let Some((s, l)) = before
            .map(|(s, l)| (*s, *l))
            .filter(|(s, l)| s + l == start)
            && !apart(start)
        {
            self.remove(s);
            start = s;
            len += l;
        }
        let end = start + len;
        let apart = self.boundary != 0 && end.is_multiple_of(self.boundary);
        if self.by_start.contains_key(&end) && !apart {
            len += self.remove(end);
        }
        self.insert(start, len);
        (start, len)
    }

    /// Takes exactly this range, if all of it is free.
    pub(crate) fn take_exactly(&mut self, start: u64, len: u64) -> bool {
        if !self.contains(start, len) {
            return false;
        }
        let Some((s, l)) = self
            .by_start
            .range(..=start)
            .next_back()
            .map(|(s, l)| (*s, *l))
        else {
            return false;
        };
        self.remove(s);
        self.insert(s, start - s);
        self.insert(start + len, s + l - start - len);
        true
    }

    /// Whether all of this range is free.
    pub(crate) fn contains(&self, start: u64, len: u64) -> bool {
        self.by_start
            .range(..=start)
            .next_back()
            .is_some_and(|(s, l)| start + len <= s + l)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_given_back_is_taken_again() {
        let mut gaps = Gaps::new(0, 1 << 30);
        let a = gaps.take(4096, 4096).unwrap();
        let b = gaps.take(4096, 4096).unwrap();
        let c = gaps.take(4096, 4096).unwrap();
        gaps.give(b, 4096);
        assert_eq!(gaps.take(4096, 4096), Some(b));
        for start in [c, a, b] {
            gaps.give(start, 4096);
        }
        assert!(gaps.contains(0, 1 << 30));
    }

    #[test]
    fn alignment_is_kept_and_the_rest_stays_free() {
        let mut gaps = Gaps::new(100, 10_000);
        assert_eq!(gaps.take(1000, 512), Some(512));
        assert!(gaps.contains(100, 412));
        assert!(gaps.contains(1512, 8588));
        assert!(!gaps.contains(512, 1));
        assert_eq!(gaps.take(9000, 1), None);
    }

    #[test]
    fn nothing_grows_together_over_a_boundary() {
        let mut gaps = Gaps::bounded(1000);
        assert_eq!(gaps.give(0, 1000), (0, 1000));
        assert_eq!(gaps.give(1000, 1000), (1000, 1000));
        assert_eq!(gaps.take(1500, 1), None);
        let at = gaps.take(600, 1).unwrap();
        assert_eq!(gaps.give(at, 600), (at, 1000));
    }

    #[test]
    fn an_exact_range_is_taken_only_if_free() {
        let mut gaps = Gaps::new(0, 100);
        assert!(gaps.take_exactly(40, 20));
        assert!(!gaps.take_exactly(50, 20));
        assert!(gaps.take_exactly(60, 40));
        assert_eq!(gaps.give(40, 60), (0, 100));
    }
}
