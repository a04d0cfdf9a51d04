//! Which windows go to which frames: bin packing of masks, first fit with the fullest frames first.

use crate::mask;
use crate::size::GRANULES;
use crate::slab::{FrameId, WindowId};
use std::cmp::Reverse;

/// A frame and the masks of its windows.
pub(super) struct Candidate {
    pub(super) frame: FrameId,
    pub(super) used: u128,
    /// It is not emptied.
    pub(super) pinned: bool,
    pub(super) windows: Vec<(WindowId, u128)>,
}

/// A frame that is emptied, and where each of its windows goes.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) frame: FrameId,
    pub(super) moves: Vec<(WindowId, FrameId)>,
}

/// Plans to empty up to `wanted` frames, the emptiest first, each window into the first frame that it fits. No frame is both
/// emptied and filled.
pub(super) fn plan(mut candidates: Vec<Candidate>, wanted: usize) -> Vec<Source> {
    candidates.sort_by_key(|candidate| Reverse(candidate.used.count_ones()));
    let mut targets = Targets::new(&candidates);
    let mut received = vec![false; candidates.len()];
    let mut sources = Vec::new();
    for index in (0..candidates.len()).rev() {
        if sources.len() >= wanted {
            break;
        }
        // Windows without a granule could not be unmapped: their frame would stay.
        let can_be_emptied = candidates[index].windows.iter().all(|(_, mask)| *mask != 0);
        if received[index] || candidates[index].pinned || !can_be_emptied {
            continue;
        }
        let used = candidates[index].used;
        targets.fill(index, !used);
        let windows = &mut candidates[index].windows;
        windows.sort_by_key(|(_, mask)| Reverse(mask.count_ones()));
        let mut placed: Vec<(usize, u128)> = Vec::with_capacity(windows.len());
        let fits = windows.iter().all(|&(_, mask)| {
            let found = targets.first_fit(mask);
            if let Some(target) = found {
                targets.fill(target, mask);
                placed.push((target, mask));
            }
            found.is_some()
        });
        if fits {
            let moves = candidates[index].windows.iter().zip(&placed);
            let moves = moves
                .map(|(&(id, _), &(target, _))| (id, candidates[target].frame))
                .collect();
            sources.push(Source {
                frame: candidates[index].frame,
                moves,
            });
            placed
                .iter()
                .for_each(|&(target, _)| received[target] = true);
        } else {
            placed
                .iter()
                .for_each(|&(target, mask)| targets.empty(target, mask));
            targets.empty(index, !used);
        }
    }
    sources
}

/// For each granule the set of frames, by their numbers, in which it is free: the frames that a window fits are the
/// intersection of the sets of its granules. Looking at 64 frames at once, this is exact and fast enough for 10^5 windows,
/// where trying one frame after the other is not: with small blocks hardly any pair is disjoint.
struct Targets {
    /// A row of 128 words for each 64 frames.
    free: Vec<[u64; GRANULES as usize]>,
}

impl Targets {
    fn new(candidates: &[Candidate]) -> Self {
        let mut targets = Self {
            free: vec![[0; GRANULES as usize]; candidates.len().div_ceil(64)],
        };
        for (index, candidate) in candidates.iter().enumerate() {
            targets.empty(index, !candidate.used);
        }
        targets
    }

    fn first_fit(&self, mask: u128) -> Option<usize> {
        let mut granules = [0u8; GRANULES as usize];
        let mut count = 0;
        for granule in mask::runs(mask).flat_map(|(start, length)| start..start + length) {
            granules[count] = granule as u8;
            count += 1;
        }
        self.free.iter().enumerate().find_map(|(row, free)| {
            let mut fits = u64::MAX;
            for &granule in &granules[..count] {
                fits &= free[usize::from(granule)];
                if fits == 0 {
                    return None;
                }
            }
            Some(row * 64 + fits.trailing_zeros() as usize)
        })
    }

    fn fill(&mut self, index: usize, granules: u128) {
        self.for_each(index, granules, |word, bit| *word &= !bit);
    }

    fn empty(&mut self, index: usize, granules: u128) {
        self.for_each(index, granules, |word, bit| *word |= bit);
    }

    fn for_each(&mut self, index: usize, granules: u128, change: impl Fn(&mut u64, u64)) {
        let row = &mut self.free[index / 64];
        for (start, length) in mask::runs(granules) {
            for word in &mut row[start as usize..(start + length) as usize] {
                change(word, 1 << (index % 64));
            }
        }
    }
}
