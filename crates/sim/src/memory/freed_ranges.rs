//! Ranges of device addresses that were freed, until they are allocated again. A number that only looks like an
//! address is in none of them: half of all floating-point numbers do look like one.

use std::collections::{BTreeMap, VecDeque};

/// How many ranges are remembered: the last that were freed.
const MAX_RANGES: usize = 1 << 16;

/// What is left of a range that was freed.
#[derive(Clone, Copy, Debug)]
struct FreedRange {
    /// Where it started when it was freed.
    start: u64,
    end: u64,
    /// Tells it from an older one at the same address, which the order may still have.
    number: u64,
}

#[derive(Debug, Default)]
pub(crate) struct FreedRanges {
    /// By the first address that is left. They never overlap.
    ranges: BTreeMap<u64, FreedRange>,
    /// (first address, number), the oldest first. Some of them are no longer in `ranges`.
    order: VecDeque<(u64, u64)>,
    last: u64,
}

impl FreedRanges {
    /// Remembers that a range was freed.
    pub(crate) fn add(&mut self, base: u64, end: u64) {
        self.remove(base, end);
        self.insert(base, base, end);
    }

    fn insert(&mut self, first: u64, start: u64, end: u64) {
        self.last += 1;
        let number = self.last;
        self.ranges.insert(first, FreedRange { start, end, number });
        self.order.push_back((first, number));
        if self.order.len() > MAX_RANGES
            && let Some((first, number)) = self.order.pop_front()
            && self
                .ranges
                .get(&first)
                .is_some_and(|range| range.number == number)
        {
            self.ranges.remove(&first);
        }
    }

    /// Forgets addresses that are allocated again.
    pub(crate) fn remove(&mut self, base: u64, end: u64) {
        while let Some((&first, &range)) = self.ranges.range(..end).next_back()
            && range.end > base
        {
            self.ranges.remove(&first);
            if first < base {
                self.insert(first, range.start, base);
            }
            if end < range.end {
                self.insert(end, range.start, range.end);
            }
        }
    }

    /// The start of the freed range that an address is in.
    pub(crate) fn find(&self, address: u64) -> Option<u64> {
        let (_, range) = self.ranges.range(..=address).next_back()?;
        (address < range.end).then_some(range.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allocated_again_is_not_freed() {
        let mut freed = FreedRanges::default();
        freed.add(100, 200);
        freed.add(200, 300);
        assert_eq!(freed.find(99), None);
        assert_eq!(freed.find(100), Some(100));
        assert_eq!(freed.find(199), Some(100));
        assert_eq!(freed.find(200), Some(200));
        assert_eq!(freed.find(300), None);
        freed.remove(150, 210);
        assert_eq!(freed.find(149), Some(100));
        assert_eq!((freed.find(150), freed.find(209)), (None, None));
        assert_eq!((freed.find(210), freed.find(299)), (Some(200), Some(200)));
        freed.add(50, 400);
        assert_eq!(freed.find(210), Some(50));
        freed.remove(100, 101);
        assert_eq!((freed.find(99), freed.find(101)), (Some(50), Some(50)));
        freed.remove(0, 1000);
        assert!(freed.ranges.is_empty());
    }

    #[test]
    fn the_last_frees_are_remembered() {
        let mut freed = FreedRanges::default();
        let count = MAX_RANGES as u64 + 10;
        // The first is freed again at the end.
        for number in (0..count).chain([0]) {
            freed.add(number * 100, number * 100 + 50);
        }
        assert_eq!(freed.ranges.len(), MAX_RANGES);
        assert_eq!(freed.order.len(), MAX_RANGES);
        assert_eq!(freed.find(0), Some(0));
        assert_eq!(freed.find(1000), None);
        assert_eq!(freed.find(1100), Some(1100));
        for _ in 0..count {
            freed.add(0, 50);
        }
        assert_eq!((freed.find(0), freed.ranges.len()), (Some(0), 1));
    }
}
