//! Loads, stores and atomic operations of a warp.

use super::address::{Address, Place, place_of};
use super::fault::{Fault, FaultKind, Stop};
use super::lanes::{LANES, Lanes, lanes};
use super::operand::Source;
use super::region::{Region, Word};
use super::warp::Warp;
use crate::types::Space;

/// Shared addresses: an offset, and above it the rank of the block in its cluster plus one; 0 is the own block.
pub(crate) const SHARED_RANK_SHIFT: u32 = 24;

#[cold]
fn misaligned(lane: usize, address: u64, size: u32) -> Stop {
    Fault::new(lane, FaultKind::Misaligned { address, size })
}

#[cold]
fn out_of_bounds(
    lane: usize,
    address: u64,
    size: usize,
    is_write: bool,
    space: &'static str,
) -> Stop {
    let size = size as u32;
    let kind = FaultKind::OutOfBounds {
        address,
        size,
        is_write,
        space,
    };
    Fault::new(lane, kind)
}

/// Whether each lane's address follows that of the lane before it.
#[inline(always)]
fn is_consecutive(addresses: &Lanes<u64>, size: usize) -> bool {
    let first = addresses[0];
    let mut differ = 0;
    for (lane, address) in addresses.iter().enumerate() {
        differ |= address ^ first.wrapping_add((lane * size) as u64);
    }
    differ == 0
}

impl<'g> Warp<'_, 'g> {
    /// The addresses of an operand in its space.
    #[inline(always)]
    pub(crate) fn addresses(&self, address: &Address) -> Lanes<u64> {
        let base: Lanes<u64> = self.read(address.base);
        let addresses = lanes(|lane| base[lane].wrapping_add_signed(address.offset));
        if matches!(address.base, Source::Word(_)) {
            return lanes(|lane| addresses[lane] & u64::from(u32::MAX));
        }
        addresses
    }

    /// Fails unless the active lanes' addresses are multiples of `align`, which is a power of two.
    #[inline(always)]
    pub(crate) fn check_aligned(&self, addresses: &Lanes<u64>, align: u32) -> Result<(), Stop> {
        let mut low = 0;
        for (lane, address) in addresses.iter().enumerate() {
            let active = u64::from(self.mask >> lane & 1).wrapping_neg();
            low |= address & active;
        }
        if low & u64::from(align - 1) == 0 {
            return Ok(());
        }
        let is_off = |lane: &usize| addresses[*lane] & u64::from(align - 1) != 0;
        let lane = self.active().find(is_off).unwrap_or(0);
        Err(misaligned(lane, addresses[lane], align))
    }

    /// The region of an address.
    #[inline(always)]
    fn region(&mut self, hint: u8, address: u64, size: usize) -> Option<Region<'g>> {
        let last = self.regions.get(hint);
        if last.offset(address, size as u64).is_some() {
            return Some(last);
        }
        self.find_region(hint, address, size)
    }

    #[inline(never)]
    pub(super) fn find_region(
        &mut self,
        hint: u8,
        address: u64,
        size: usize,
    ) -> Option<Region<'g>> {
        let found = self.grid.memory.find(address)?;
        found.offset(address, size as u64)?;
        self.regions.set(hint, found);
        Some(found)
    }

    /// Loads a value per active lane, whose addresses are aligned.
    #[inline(always)]
    pub(crate) fn load<W: Word>(
        &mut self,
        space: Space,
        hint: u8,
        addresses: &Lanes<u64>,
    ) -> Result<Lanes<W>, Stop> {
        match space {
            Space::Generic | Space::Global | Space::Const => {
                if self.mask == u32::MAX
                    && is_consecutive(addresses, W::SIZE)
                    && let Some(region) = self.region(hint, addresses[0], W::SIZE)
                    && let Some(row) = region.load_row(addresses[0])
                {
                    return Ok(row);
                }
                self.load_scattered(space, hint, addresses)
            }
            _ => self.load_scattered(space, hint, addresses),
        }
    }

    #[inline(never)]
    fn load_scattered<W: Word>(
        &mut self,
        space: Space,
        hint: u8,
        addresses: &Lanes<u64>,
    ) -> Result<Lanes<W>, Stop> {
        let mut values = [W::from_bits(0); LANES];
        for lane in self.active() {
            let address = addresses[lane];
            let region = self.regions.get(hint);
            let is_global = matches!(space, Space::Global | Space::Generic | Space::Const);
            values[lane] = match region.load(address) {
                Some(value) if is_global => value,
                _ => self.load_lane(space, hint, lane, address)?,
            };
        }
        Ok(values)
    }

    /// Loads the value of one lane.
    pub(crate) fn load_lane<W: Word>(
        &mut self,
        space: Space,
        hint: u8,
        lane: usize,
        address: u64,
    ) -> Result<W, Stop> {
        let fail = |space| out_of_bounds(lane, address, W::SIZE, false, space);
        match in_space(space, address) {
            Place::Global(at) => {
                let region = self.region(hint, at, W::SIZE);
                let value = region.and_then(|region| region.load(at));
                value.ok_or_else(|| fail("global"))
            }
            Place::Shared(at) => {
                let (rank, offset) = self.shared_place(at);
                let own = self.cluster.shared.get(rank);
                let value = own.and_then(|own| own.load(offset));
                value.ok_or_else(|| fail("shared"))
            }
            Place::Local(at) => {
                let bits = self.local.load(lane, at, W::SIZE as u32);
                bits.map(W::from_bits).ok_or_else(|| fail("local"))
            }
            Place::Param(at) => {
                let bytes = self.grid.arguments;
                let range = usize::try_from(at)
                    .ok()
                    .and_then(|at| bytes.get(at..)?.get(..W::SIZE));
                range.map(W::read).ok_or_else(|| fail("param"))
            }
        }
    }

    /// Stores a value per active lane, whose addresses are aligned.
    #[inline(always)]
    pub(crate) fn store<W: Word>(
        &mut self,
        space: Space,
        hint: u8,
        addresses: &Lanes<u64>,
        values: &Lanes<W>,
    ) -> Result<(), Stop> {
        if matches!(space, Space::Generic | Space::Global)
            && self.mask == u32::MAX
            && is_consecutive(addresses, W::SIZE)
            && let Some(region) = self.region(hint, addresses[0], W::SIZE)
            && region.store_row(addresses[0], values).is_some()
        {
            return Ok(());
        }
        self.store_scattered(space, hint, addresses, values)
    }

    #[inline(never)]
    fn store_scattered<W: Word>(
        &mut self,
        space: Space,
        hint: u8,
        addresses: &Lanes<u64>,
        values: &Lanes<W>,
    ) -> Result<(), Stop> {
        for lane in self.active() {
            self.store_lane(space, hint, lane, addresses[lane], values[lane])?;
        }
        Ok(())
    }

    /// Stores the value of one lane.
    #[inline(always)]
    pub(crate) fn store_lane<W: Word>(
        &mut self,
        space: Space,
        hint: u8,
        lane: usize,
        address: u64,
        value: W,
    ) -> Result<(), Stop> {
        let fail = |space| out_of_bounds(lane, address, W::SIZE, true, space);
        match in_space(space, address) {
            Place::Global(at) => {
                let region = self.region(hint, at, W::SIZE);
                let done = region.and_then(|region| region.store(at, value));
                done.ok_or_else(|| fail("global"))
            }
            Place::Shared(at) => {
                let (rank, offset) = self.shared_place(at);
                let own = self.cluster.shared.get_mut(rank);
                let done = own.and_then(|own| own.store(offset, value));
                done.ok_or_else(|| fail("shared"))
            }
            Place::Local(at) => {
                let done = self.local.store(lane, at, W::SIZE as u32, value.to_bits());
                done.ok_or_else(|| fail("local"))
            }
            Place::Param(_) => Err(fail("param")),
        }
    }

    /// Replaces the value at the address of one lane atomically, and returns the old one.
    #[inline(always)]
    pub(crate) fn update_lane<W: Word>(
        &mut self,
        space: Space,
        hint: u8,
        lane: usize,
        address: u64,
        mut new: impl FnMut(W) -> W,
    ) -> Result<W, Stop> {
        if let Place::Global(at) = in_space(space, address) {
            let region = self.region(hint, at, W::SIZE);
            let old = region.and_then(|region| region.update(at, new));
            return old.ok_or_else(|| out_of_bounds(lane, address, W::SIZE, true, "global"));
        }
        // One thread of the host executes all that can access it.
        let old = self.load_lane(space, hint, lane, address)?;
        self.store_lane(space, hint, lane, address, new(old))?;
        Ok(old)
    }

    /// The rank of the block and the offset of a shared address.
    #[inline(always)]
    pub(crate) fn shared_place(&self, address: u64) -> (usize, u64) {
        let rank = match address >> SHARED_RANK_SHIFT {
            0 => self.block.rank as usize,
            tag => (tag - 1) as usize,
        };
        (rank, address & ((1 << SHARED_RANK_SHIFT) - 1))
    }
}

/// Where an address of a space is.
#[inline(always)]
pub(crate) fn in_space(space: Space, address: u64) -> Place {
    match space {
        Space::Global | Space::Const => Place::Global(address),
        Space::Shared | Space::SharedCluster => Place::Shared(address),
        Space::Local => Place::Local(address),
        Space::Param => Place::Param(address),
        Space::Generic | Space::Register => place_of(address),
    }
}
