//! The registers of a warp.

use super::lanes::{LANES, Lanes};

/// The registers of a warp, all lanes of a register together. Functions that are called have their registers behind
/// those of their callers. Lanes that have diverged use the same rows for different functions; each has its own column.
#[derive(Debug, Default)]
pub(crate) struct Registers {
    /// One bit per lane.
    predicates: Vec<u32>,
    words: Vec<Lanes<u32>>,
    longs: Vec<Lanes<u64>>,
    base: Base,
}

/// Where the registers and the frame of the current function begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Base {
    pub(crate) predicates: u32,
    pub(crate) words: u32,
    pub(crate) longs: u32,
    /// In bytes of local memory.
    pub(crate) local: u32,
}

impl Registers {
    /// Makes room for a function whose registers begin at `base`.
    pub(crate) fn reserve(&mut self, base: Base, counts: [u32; 3]) {
        let [predicates, words, longs] = counts;
        grow(&mut self.predicates, base.predicates + predicates, 0);
        grow(&mut self.words, base.words + words, [0; LANES]);
        grow(&mut self.longs, base.longs + longs, [0; LANES]);
    }

    /// The bytes of all.
    pub(crate) fn bytes(&self) -> usize {
        4 * self.predicates.len() + LANES * (4 * self.words.len() + 8 * self.longs.len())
    }

    /// Selects the registers that slots refer to.
    pub(crate) fn set_base(&mut self, base: Base) {
        self.base = base;
    }

    pub(crate) fn base(&self) -> Base {
        self.base
    }

    #[inline(always)]
    pub(crate) fn predicate(&self, slot: u32) -> u32 {
        self.predicates[(self.base.predicates + slot) as usize]
    }

    /// Writes the bits of the lanes in `mask`.
    #[inline(always)]
    pub(crate) fn set_predicate(&mut self, slot: u32, mask: u32, bits: u32) {
        let own = &mut self.predicates[(self.base.predicates + slot) as usize];
        *own = *own & !mask | bits & mask;
    }

    #[inline(always)]
    pub(crate) fn words(&self, slot: u32) -> &Lanes<u32> {
        &self.words[(self.base.words + slot) as usize]
    }

    #[inline(always)]
    pub(crate) fn set_words(&mut self, slot: u32, mask: u32, values: &Lanes<u32>) {
        blend(
            &mut self.words[(self.base.words + slot) as usize],
            mask,
            values,
        );
    }

    #[inline(always)]
    pub(crate) fn longs(&self, slot: u32) -> &Lanes<u64> {
        &self.longs[(self.base.longs + slot) as usize]
    }

    #[inline(always)]
    pub(crate) fn set_longs(&mut self, slot: u32, mask: u32, values: &Lanes<u64>) {
        blend(
            &mut self.longs[(self.base.longs + slot) as usize],
            mask,
            values,
        );
    }
}

/// Replaces the values of the lanes in `mask`.
#[inline(always)]
pub(super) fn blend<T: Copy>(own: &mut Lanes<T>, mask: u32, values: &Lanes<T>) {
    if mask == u32::MAX {
        *own = *values;
        return;
    }
    for lane in 0..LANES {
        if mask >> lane & 1 != 0 {
            own[lane] = values[lane];
        }
    }
}

fn grow<T: Clone>(rows: &mut Vec<T>, len: u32, value: T) {
    if rows.len() < len as usize {
        rows.resize(len as usize, value);
    }
}
