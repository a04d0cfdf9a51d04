//! All begins and ends of allocations in order of time.

use crate::run::{Allocation, FOREVER, Run};

/// Goes through the times at which something is allocated or freed.
///
/// An allocation is alive from its begin up to, but not including, its end. What begins and ends at one time is never
/// alive: the state is that behind all changes of a time.
pub(crate) struct Sweep<'r> {
    allocations: &'r [Allocation],
    /// Indices of those that end, in order of their ends.
    ends: Vec<u32>,
    next_start: usize,
    next_end: usize,
}

/// The end; at least the begin, also in a broken run.
fn end(allocation: &Allocation) -> u64 {
    allocation.end.max(allocation.start)
}

impl<'r> Sweep<'r> {
    pub(crate) fn new(run: &'r Run) -> Self {
        let allocations = run.allocations.as_slice();
        let count = u32::try_from(allocations.len()).unwrap_or(u32::MAX);
        let ends = |index: &u32| allocations[*index as usize].end != FOREVER;
        let mut ends: Vec<u32> = (0..count).filter(ends).collect();
        ends.sort_unstable_by_key(|index| end(&allocations[*index as usize]));
        Self {
            allocations,
            ends,
            next_start: 0,
            next_end: 0,
        }
    }

    /// The time of the next change.
    pub(crate) fn next_time(&self) -> Option<u64> {
        let start = self.allocations.get(self.next_start).map(|a| a.start);
        let ending = self.ends.get(self.next_end);
        let end = ending.map(|index| end(&self.allocations[*index as usize]));
        match (start, end) {
            (Some(start), Some(end)) => Some(start.min(end)),
            (start, end) => start.or(end),
        }
    }

    /// Applies all changes of the next time, and returns it. `change` gets an allocation, and whether it begins.
    pub(crate) fn step(&mut self, mut change: impl FnMut(&Allocation, bool)) -> Option<u64> {
        let time = self.next_time()?;
        // Begins first: what begins and ends at this time is added before it is subtracted.
        while let Some(allocation) = self.allocations.get(self.next_start)
            && allocation.start == time
        {
            change(allocation, true);
            self.next_start += 1;
        }
        while let Some(index) = self.ends.get(self.next_end)
            && end(&self.allocations[*index as usize]) == time
        {
            change(&self.allocations[*index as usize], false);
            self.next_end += 1;
        }
        Some(time)
    }
}
