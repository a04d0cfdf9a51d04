//! Local memory.

use super::lanes::{LANES, Lanes};
use super::registers::blend;

/// The local memory of a warp: as on a GPU, words at the same address of all lanes are adjacent.
#[derive(Debug, Default)]
pub(crate) struct Local {
    rows: Vec<Lanes<u32>>,
}

/// Bytes of local memory that a thread can have, as on every GPU.
pub(crate) const MAX_LOCAL: u64 = 512 << 10;

impl Local {
    /// Makes room for `bytes`; false if there cannot be as many.
    pub(crate) fn reserve(&mut self, bytes: u64) -> bool {
        if bytes > MAX_LOCAL {
            return false;
        }
        let rows = bytes.div_ceil(4) as usize;
        if self.rows.len() < rows {
            self.rows.resize(rows, [0; LANES]);
        }
        true
    }

    /// The bytes of all lanes.
    pub(crate) fn bytes(&self) -> usize {
        4 * LANES * self.rows.len()
    }

    /// `size` bytes of a lane, at most 8, aligned to their size; `None` out of bounds.
    pub(crate) fn load(&self, lane: usize, address: u64, size: u32) -> Option<u64> {
        let row = usize::try_from(address / 4).ok()?;
        let word = u64::from(self.rows.get(row)?[lane]);
        Some(match size {
            1 | 2 => word >> (8 * (address % 4)) & ((1 << (8 * size)) - 1),
            4 => word,
            _ => u64::from(self.rows.get(row + 1)?[lane]) << 32 | word,
        })
    }

    /// Writes `size` bytes of a lane; `None` out of bounds.
    pub(crate) fn store(&mut self, lane: usize, address: u64, size: u32, value: u64) -> Option<()> {
        let row = usize::try_from(address / 4).ok()?;
        if size > 4 {
            self.rows.get_mut(row + 1)?[lane] = (value >> 32) as u32;
        }
        let word = &mut self.rows.get_mut(row)?[lane];
        if size < 4 {
            let shift = 8 * (address % 4) as u32;
            let mask = ((1 << (8 * size)) - 1) << shift;
            *word = *word & !mask | (value as u32) << shift & mask;
        } else {
            *word = value as u32;
        }
        Some(())
    }

    /// The word at the same address of all lanes.
    pub(crate) fn row(&self, address: u64) -> Option<&Lanes<u32>> {
        self.rows.get(usize::try_from(address / 4).ok()?)
    }

    /// Writes the word at the same address of the lanes in `mask`.
    pub(crate) fn set_row(&mut self, address: u64, mask: u32, values: &Lanes<u32>) -> Option<()> {
        let row = self.rows.get_mut(usize::try_from(address / 4).ok()?)?;
        blend(row, mask, values);
        Some(())
    }
}
