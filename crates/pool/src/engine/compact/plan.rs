//! Which windows go to which frames: bin packing of masks.

use crate::random::Random;
use crate::size::GRANULES;
use crate::slab::{FrameId, WindowId};

/// Frames of one fill that are looked at for one window. Bounded: with small blocks hardly any pair is disjoint.
const PROBES: usize = 48;

/// A frame and the masks of its windows.
pub(super) struct Candidate {
    pub(super) frame: FrameId,
    pub(super) used: u128,
    pub(super) windows: Vec<(WindowId, u128)>,
}

/// A frame that is emptied, and where each of its windows goes.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) frame: FrameId,
    pub(super) moves: Vec<(WindowId, FrameId)>,
}

/// Plans to empty up to `wanted` frames, the emptiest first, each window into the fullest frame that it fits. No frame is
/// both emptied and filled.
pub(super) fn plan(
    mut candidates: Vec<Candidate>,
    wanted: usize,
    random: &mut Random,
) -> Vec<Source> {
    candidates.sort_by_key(|candidate| candidate.used.count_ones());
    let mut targets = Targets::new(&candidates);
    let mut sources = Vec::new();
    for (index, candidate) in candidates.iter_mut().enumerate() {
        if sources.len() >= wanted {
            break;
        }
        if targets.received[index] {
            continue;
        }
        targets.remove(index);
        candidate
            .windows
            .sort_by_key(|(_, mask)| std::cmp::Reverse(mask.count_ones()));
        let mut placed: Vec<(usize, u128)> = Vec::with_capacity(candidate.windows.len());
        let fits = candidate.windows.iter().all(|&(_, mask)| {
            let found = targets.find(mask, random);
            if let Some(target) = found {
                targets.change(target, targets.used[target] | mask);
                placed.push((target, mask));
            }
            found.is_some()
        });
        if fits {
            let moves = candidate
                .windows
                .iter()
                .zip(&placed)
                .map(|(&(id, _), &(target, _))| (id, target));
            sources.push((index, moves.collect::<Vec<_>>()));
            for (target, _) in placed {
                targets.received[target] = true;
            }
        } else {
            for (target, mask) in placed.into_iter().rev() {
                targets.change(target, targets.used[target] & !mask);
            }
            targets.insert(index);
        }
    }
    let frame_of = |index: usize| candidates[index].frame;
    sources
        .into_iter()
        .map(|(index, moves)| Source {
            frame: frame_of(index),
            moves: moves
                .into_iter()
                .map(|(id, target)| (id, frame_of(target)))
                .collect(),
        })
        .collect()
}

/// Frames by how full they are, with what is planned.
struct Targets {
    used: Vec<u128>,
    /// Whether a window is planned to go there.
    received: Vec<bool>,
    /// Positions in the lists.
    at: Vec<usize>,
    by_fill: Vec<Vec<usize>>,
}

impl Targets {
    fn new(candidates: &[Candidate]) -> Self {
        let mut targets = Self {
            used: candidates.iter().map(|candidate| candidate.used).collect(),
            received: vec![false; candidates.len()],
            at: vec![0; candidates.len()],
            by_fill: vec![Vec::new(); GRANULES as usize + 1],
        };
        (0..candidates.len()).for_each(|index| targets.insert(index));
        targets
    }

    /// The fullest frame found with a disjoint mask.
    fn find(&self, mask: u128, random: &mut Random) -> Option<usize> {
        let most = (GRANULES - mask.count_ones()) as usize;
        for list in self.by_fill[..=most].iter().rev() {
            if list.is_empty() {
                continue;
            }
            let start = random.below(list.len() as u32) as usize;
            let probed = list[start..].iter().chain(&list[..start]).take(PROBES);
            if let Some(&found) = probed
                .into_iter()
                .find(|&&index| self.used[index] & mask == 0)
            {
                return Some(found);
            }
        }
        None
    }

    fn change(&mut self, index: usize, used: u128) {
        self.remove(index);
        self.used[index] = used;
        self.insert(index);
    }

    fn insert(&mut self, index: usize) {
        let list = &mut self.by_fill[self.used[index].count_ones() as usize];
        self.at[index] = list.len();
        list.push(index);
    }

    fn remove(&mut self, index: usize) {
        let list = &mut self.by_fill[self.used[index].count_ones() as usize];
        let at = self.at[index];
        list.swap_remove(at);
        if let Some(&moved) = list.get(at) {
            self.at[moved] = at;
        }
    }
}
