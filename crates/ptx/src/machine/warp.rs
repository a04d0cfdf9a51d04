//! A warp as instructions see it.

use super::grid::{BlockId, Grid};
use super::lanes::{LANES, Lanes};
use super::local::Local;
use super::region::Regions;
use super::registers::Registers;
use super::shared::SharedMemory;

/// The blocks of a cluster, as far as instructions of all of them reach.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// The shared memory of each block, by its rank.
    pub(crate) shared: Vec<SharedMemory>,
}

/// A warp as an instruction sees it.
pub(crate) struct Warp<'a, 'g> {
    /// The lanes that execute the instruction. Others may diverge from them or have ended.
    pub(crate) mask: u32,
    pub(crate) registers: &'a mut Registers,
    pub(crate) local: &'a mut Local,
    pub(crate) cluster: &'a mut Cluster,
    pub(crate) regions: &'a mut Regions<'g>,
    pub(crate) grid: &'g Grid<'g>,
    pub(crate) block: BlockId,
    /// The warp's number in its block.
    pub(crate) number: u32,
    /// `%tid` of each lane.
    pub(crate) threads: &'a [Lanes<u32>; 3],
    /// Carry flags of extended-precision arithmetic.
    pub(crate) carry: &'a mut u32,
    /// Instructions that the block has executed, for clocks.
    pub(crate) clock: u64,
    /// Set by instructions that a loop may wait with: another group of lanes should have its turn soon.
    pub(crate) is_waiting: bool,
}

impl Warp<'_, '_> {
    /// The lanes that execute the instruction, in order.
    #[inline(always)]
    pub(crate) fn active(&self) -> impl Iterator<Item = usize> + use<> {
        let mask = self.mask;
        (0..LANES).filter(move |lane| mask >> lane & 1 != 0)
    }
}
