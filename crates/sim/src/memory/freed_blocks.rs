//! Blocks of a pool that were freed on a stream, until the host has synchronized with the free. They
//! serve new allocations: on their own stream at once, on others when the stream has reached the
//! free.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::handle::Id;

/// A block, and the work on a stream that frees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FreedBlock {
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) stream: Id,
    pub(crate) work: u64,
    /// Whether the stream has reached the free.
    pub(crate) reached: bool,
}

/// The same blocks in three orders, one for each query.
#[derive(Debug, Default)]
pub(crate) struct FreedBlocks {
    /// (stream, work, offset)
    by_work: BTreeMap<(Id, u64, u64), FreedBlock>,
    /// (stream, length, offset, work)
    by_stream: BTreeSet<(Id, u64, u64, u64)>,
    /// (length, offset, stream, work) of those whose stream has reached the free.
    reached: BTreeSet<(u64, u64, Id, u64)>,
}

impl FreedBlocks {
    pub(crate) fn insert(&mut self, block: FreedBlock) {
        let (stream, work, offset) = (block.stream, block.work, block.offset);
        self.by_work.insert((stream, work, offset), block);
        self.by_stream.insert((stream, block.len, offset, work));
        if block.reached {
            self.reached.insert((block.len, offset, stream, work));
        }
    }

    pub(crate) fn remove(&mut self, stream: Id, work: u64, offset: u64) -> Option<FreedBlock> {
        let block = self.by_work.remove(&(stream, work, offset))?;
        self.by_stream.remove(&(stream, block.len, offset, work));
        self.reached.remove(&(block.len, offset, stream, work));
        Some(block)
    }

    /// Notes that a stream has reached a free.
    pub(crate) fn mark_reached(&mut self, stream: Id, work: u64) {
        let freed = (stream, work, 0)..=(stream, work, u64::MAX);
        for (_, block) in self.by_work.range_mut(freed) {
            block.reached = true;
            self.reached.insert((block.len, block.offset, stream, work));
        }
    }

    /// Takes the smallest block of at least `len`, the lowest among equals, that was freed on the
    /// stream itself or, if `others`, whose stream has reached the free.
    pub(crate) fn take(&mut self, len: u64, stream: Id, others: bool) -> Option<FreedBlock> {
        let own = (stream, len, 0, 0)..=(stream, u64::MAX, u64::MAX, u64::MAX);
        let own = self.by_stream.range(own).next();
        let own = own.map(|(stream, len, offset, work)| (*len, *offset, *stream, *work));
        let other = self.reached.range((len, 0, 0, 0)..).next().copied();
        let other = other.filter(|_| others);
        let (_, offset, stream, work) = own.into_iter().chain(other).min()?;
        self.remove(stream, work, offset)
    }

    /// Takes all blocks whose free the host has synchronized with: `completed` returns the last such
    /// work of a stream, if any.
    pub(crate) fn take_synchronized(
        &mut self,
        completed: impl Fn(Id) -> Option<u64>,
    ) -> Vec<FreedBlock> {
        let mut keys = Vec::new();
        let mut next = Bound::Unbounded;
        while let Some(((stream, ..), _)) = self.by_work.range((next, Bound::Unbounded)).next() {
            let stream = *stream;
            if let Some(work) = completed(stream) {
                let freed = (stream, 0, 0)..=(stream, work, u64::MAX);
                keys.extend(self.by_work.range(freed).map(|(key, _)| *key));
            }
            next = Bound::Excluded((stream, u64::MAX, u64::MAX));
        }
        keys.into_iter()
            .filter_map(|(stream, work, offset)| self.remove(stream, work, offset))
            .collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.by_work.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn freed(offset: u64, len: u64, stream: Id, work: u64) -> FreedBlock {
        FreedBlock {
            offset,
            len,
            stream,
            work,
            reached: false,
        }
    }

    #[test]
    fn the_smallest_that_fits_and_may_be_had_is_taken() {
        let mut blocks = FreedBlocks::default();
        for block in [
            freed(0, 100, 1, 1),
            freed(100, 50, 1, 2),
            freed(200, 50, 2, 1),
        ] {
            blocks.insert(block);
        }
        assert_eq!(blocks.take(60, 2, true), None);
        assert_eq!(blocks.take(10, 2, true).unwrap().offset, 200);
        assert_eq!(blocks.take(10, 2, true), None);
        blocks.mark_reached(1, 2);
        assert_eq!(blocks.take(10, 2, false), None);
        assert_eq!(blocks.take(10, 2, true).unwrap().offset, 100);
        assert_eq!(blocks.take(10, 1, false).unwrap().offset, 0);
        assert!(blocks.is_empty() && blocks.by_stream.is_empty() && blocks.reached.is_empty());
    }

    #[test]
    fn what_was_seen_is_taken_stream_by_stream() {
        let mut blocks = FreedBlocks::default();
        for (stream, work) in [(1, 1), (1, 2), (2, 1), (3, 9)] {
            blocks.insert(freed(stream * 1000 + work, 10, stream, work));
        }
        let completed = |stream| match stream {
            1 => Some(1),
            3 => Some(u64::MAX),
            _ => None,
        };
        let offsets: Vec<u64> = blocks
            .take_synchronized(completed)
            .iter()
            .map(|b| b.offset)
            .collect();
        assert_eq!(offsets, [1001, 3009]);
        assert!(blocks.take_synchronized(completed).is_empty());
    }
}
