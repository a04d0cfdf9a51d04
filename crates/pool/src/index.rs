//! Frames by the length of a run of free granules: a list for each length, so that a change costs a few nanoseconds.

use crate::size::GRANULES;
use crate::slab::FrameId;

const LENGTHS: usize = GRANULES as usize + 1;

#[derive(Debug)]
pub(crate) struct Index {
    lists: Vec<Vec<FrameId>>,
    /// Which lists are not empty.
    filled: [u64; LENGTHS.div_ceil(64)],
}

impl Index {
    pub(crate) fn new() -> Self {
        Self {
            lists: vec![Vec::new(); LENGTHS],
            filled: [0; LENGTHS.div_ceil(64)],
        }
    }

    /// Enters a frame. Returns its position, which `remove` needs.
    pub(crate) fn insert(&mut self, length: u8, id: FrameId) -> u32 {
        let list = &mut self.lists[usize::from(length)];
        list.push(id);
        self.filled[usize::from(length) / 64] |= 1 << (length % 64);
        (list.len() - 1) as u32
    }

    /// Removes the frame at a position. Returns the frame that has that position now.
    pub(crate) fn remove(&mut self, length: u8, at: u32) -> Option<FrameId> {
        let list = &mut self.lists[usize::from(length)];
        list.swap_remove(at as usize);
        if list.is_empty() {
            self.filled[usize::from(length) / 64] &= !(1 << (length % 64));
        }
        list.get(at as usize).copied()
    }

    /// The shortest run of at least this length, and a frame that has it.
    pub(crate) fn best(&self, least: u32) -> Option<(u32, FrameId)> {
        let mut word = least as usize / 64;
        let mut lengths = self.filled.get(word)? & (u64::MAX << (least % 64));
        while lengths == 0 {
            word += 1;
            lengths = *self.filled.get(word)?;
        }
        let length = word as u32 * 64 + lengths.trailing_zeros();
        self.lists[length as usize].last().map(|&id| (length, id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_run_that_is_long_enough() {
        let mut index = Index::new();
        let id = FrameId::MIN;
        assert_eq!(index.best(1), None);
        let at = index.insert(128, id);
        index.insert(3, id);
        assert_eq!(index.best(1), Some((3, id)));
        assert_eq!(index.best(4), Some((128, id)));
        assert_eq!(index.best(128), Some((128, id)));
        assert_eq!(index.remove(128, at), None);
        assert_eq!(index.best(4), None);
        let first = index.insert(3, id);
        assert_eq!((first, index.remove(3, 0)), (1, Some(id)));
    }
}
