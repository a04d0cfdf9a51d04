//! How device memory lies in pages, and whose small blocks keep which.

use std::collections::{HashMap, HashSet};

use super::names::BuildMix;
use super::shared::Shared;

/// The driver gives device memory out in pages of this size. Blocks below it share pages, blocks
/// from it on have whole pages of their own.
pub const PAGE: u64 = 2 << 20;

/// How device memory lies in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pages {
    /// The bytes of blocks that have pages of their own.
    pub large_bytes: u64,
    /// How many pages these have.
    pub large_pages: u64,
    /// The bytes of blocks that share pages.
    pub small_bytes: u64,
    /// How many pages these keep.
    pub small_pages: u64,
    /// The bytes of other contexts in these pages.
    pub guests: u64,
    /// The bytes of small blocks in pages of other contexts. They are in no other figure here.
    pub away: u64,
}

impl Pages {
    /// Takes account of what lies in pages with other contexts.
    pub fn share(&mut self, shared: Shared) {
        self.small_pages = self.small_pages.min(shared.pages);
        self.small_bytes = self.small_bytes.saturating_sub(shared.away);
        (self.guests, self.away) = (shared.guests, shared.away);
    }
}

/// Whose small blocks are in which page: a bit for each of the first piles, others in a set.
#[derive(Default)]
pub(super) struct SmallPages {
    runs: Vec<[u64; RUN]>,
    others: HashSet<(u64, usize), BuildMix>,
    /// Which run the pages are in that have this number when divided by [`RUN`].
    places: HashMap<u64, usize, BuildMix>,
    /// The run of the block before.
    last: Option<(u64, usize)>,
}

/// So many pages, one after the other, are looked up at once: 1 GiB of addresses.
const RUN: usize = 512;

/// How many piles have a bit of their own. The highest bit says that others are there.
const BITS: usize = 63;

impl SmallPages {
    /// A pile has a small block in a page. Whether it is the first block there, and the first of the
    /// pile.
    #[inline]
    pub(super) fn meet(&mut self, page: u64, pile: usize) -> (bool, bool) {
        let piles = self.piles_in(page);
        let bit = 1 << pile.min(BITS);
        let is_first = *piles == 0;
        let is_new = *piles & bit == 0;
        *piles |= bit;
        if pile < BITS {
            (is_first, is_new)
        } else {
            (is_first, self.others.insert((page, pile)))
        }
    }

    #[inline]
    fn piles_in(&mut self, page: u64) -> &mut u64 {
        let (number, within) = (page / RUN as u64, page as usize % RUN);
        let run = match self.last {
            Some((last, run)) if last == number => run,
            _ => self.other_run(number),
        };
        &mut self.runs[run][within]
    }

    #[inline(never)]
    fn other_run(&mut self, number: u64) -> usize {
        let run = *self.places.entry(number).or_insert_with(|| {
            self.runs.push([0; RUN]);
            self.runs.len() - 1
        });
        self.last = Some((number, run));
        run
    }
}
