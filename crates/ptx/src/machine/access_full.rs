//! Loads and stores of whole warps, on their way without copies of addresses. They do nothing where it is not theirs.

use super::address::Address;
use super::lanes::{LANES, Lanes};
use super::operand::Source;
use super::region::{Region, Word};
use super::warp::Warp;
use crate::types::Space;

impl<'g> Warp<'_, 'g> {
    /// Loads for all lanes, if none is inactive: adjacent values of global memory, or any of shared memory.
    #[inline(always)]
    pub(crate) fn load_full<W: Word>(&mut self, address: &Address) -> Option<Lanes<W>> {
        if self.mask != u32::MAX {
            return None;
        }
        match (address.space, address.base) {
            (Space::Global | Space::Generic | Space::Const, Source::Long(slot)) => {
                let (region, first) = self.row_region::<W>(slot, address)?;
                region.load_row(first)
            }
            (Space::Shared, base @ (Source::Word(_) | Source::Symbol(..))) => {
                let offsets = self.shared_offsets::<W>(base, address.offset as u32)?;
                let own = &self.cluster.shared[self.block.rank as usize];
                let mut values = [W::from_bits(0); LANES];
                for lane in 0..LANES {
                    values[lane] = own.load(offsets[lane].into())?;
                }
                Some(values)
            }
            _ => None,
        }
    }

    /// Stores for all lanes, if none is inactive: adjacent values to global memory, or any to shared memory.
    #[inline(always)]
    pub(crate) fn store_full<W: Word>(
        &mut self,
        address: &Address,
        values: impl Fn(&Self) -> Lanes<W>,
    ) -> Option<()> {
        if self.mask != u32::MAX {
            return None;
        }
        match (address.space, address.base) {
            (Space::Global | Space::Generic, Source::Long(slot)) => {
                let (region, first) = self.row_region::<W>(slot, address)?;
                region.store_row(first, &values(self))
            }
            (Space::Shared, base @ (Source::Word(_) | Source::Symbol(..))) => {
                let offsets = self.shared_offsets::<W>(base, address.offset as u32)?;
                let values = values(self);
                let own = &mut self.cluster.shared[self.block.rank as usize];
                for lane in 0..LANES {
                    own.store(offsets[lane].into(), values[lane])?;
                }
                Some(())
            }
            _ => None,
        }
    }

    /// The region of adjacent values, and the address of the first.
    #[inline(always)]
    fn row_region<W: Word>(&mut self, slot: u32, address: &Address) -> Option<(Region<'g>, u64)> {
        let base = self.registers.longs(slot);
        let start = base[0];
        let mut differ = 0;
        for (lane, own) in base.iter().enumerate() {
            differ |= own ^ start.wrapping_add((lane * W::SIZE) as u64);
        }
        if differ != 0 {
            return None;
        }
        let first = start.wrapping_add_signed(address.offset);
        let last = self.regions.get(address.hint);
        let size = (W::SIZE * LANES) as u64;
        if last.offset(first, size).is_some() {
            return Some((last, first));
        }
        let region = self.find_region(address.hint, first, W::SIZE * LANES)?;
        Some((region, first))
    }

    /// The offsets in the block's own shared memory. `None` if one may be out of bounds or not aligned.
    #[inline(always)]
    fn shared_offsets<W: Word>(&self, base: Source, offset: u32) -> Option<Lanes<u32>> {
        let base = &*self.row::<u32>(base);
        let mut offsets = [0u32; LANES];
        let mut all = 0;
        for lane in 0..LANES {
            offsets[lane] = base[lane].wrapping_add(offset);
            all |= offsets[lane];
        }
        // With the bits of all offsets: no offset is larger.
        let is_aligned = all as usize & (W::SIZE - 1) == 0;
        let len = self.cluster.shared[self.block.rank as usize].len();
        let is_within = u64::from(all) < len.next_power_of_two();
        (is_aligned && is_within).then_some(offsets)
    }
}
