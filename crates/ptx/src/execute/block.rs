//! Executes a block: its warps in turn, from barrier to barrier.

use super::barriers::{Barriers, ClusterBarrier};
use super::code::Code;
use super::warp::{Failure, Pause, Surroundings, WarpState};
use crate::machine::{BlockId, Cluster, Fault, FaultKind, Grid, LANES, Lanes, Regions, lanes};

/// Instructions that a warp executes before the next has its turn.
const SLICE: u64 = 1 << 16;

/// A block.
#[derive(Debug)]
pub(super) struct Block {
    id: BlockId,
    warps: Vec<WarpState>,
    barriers: Barriers,
    /// The order in which warps have their turns.
    order: Vec<usize>,
    next: usize,
    /// Instructions executed by its warps.
    clock: u64,
}

/// What the blocks of a cluster share.
pub(super) struct Together<'a, 'g> {
    pub(super) code: &'g Code,
    pub(super) grid: &'g Grid<'g>,
    pub(super) cluster: &'a mut Cluster,
    pub(super) cluster_barrier: &'a mut ClusterBarrier,
    pub(super) regions: &'a mut Regions<'g>,
    /// Instructions that a warp may execute in all.
    pub(super) limit: u64,
}

/// Why a block stopped executing for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockPause {
    Ended,
    /// All warps wait for barriers.
    Blocked,
    /// Every warp had its turn; `is_waiting` if none but those that may wait for other blocks go on.
    Turn {
        is_waiting: bool,
    },
}

impl Block {
    /// A block at the start of a kernel; `order` is that of its warps.
    pub(super) fn new(
        code: &Code,
        kernel: usize,
        id: BlockId,
        extent: [u32; 3],
        order: impl FnOnce(usize) -> Vec<usize>,
    ) -> Self {
        let count = extent.iter().product::<u32>() as usize;
        let warps = count.div_ceil(LANES);
        let states = (0..warps).map(|number| {
            let threads = coordinates(number * LANES, extent);
            let here = (count - number * LANES).min(LANES);
            let alive = u32::MAX >> (LANES - here);
            WarpState::new(code, kernel, number as u32, threads, alive)
        });
        Self {
            id,
            warps: states.collect(),
            barriers: Barriers::new(warps),
            order: order(warps),
            next: 0,
            clock: 0,
        }
    }

    /// Instructions executed: by warps, by threads.
    pub(super) fn steps(&self) -> (u64, u64) {
        let all = self.warps.iter();
        all.fold((0, 0), |sum, own| {
            (sum.0 + own.steps, sum.1 + own.lane_steps)
        })
    }

    /// `%ctaid`
    pub(super) fn index(&self) -> [u32; 3] {
        self.id.index
    }

    /// The lanes that have not ended: the block's rank, the warp's number, the lanes.
    pub(super) fn alive(&self) -> impl Iterator<Item = (u32, u32, u32)> {
        let rank = self.id.rank;
        let warps = self.warps.iter();
        warps.map(move |own| (rank, own.number, own.alive))
    }

    /// Bytes of the host that it needs, about.
    pub(super) fn bytes(&self) -> usize {
        self.warps.iter().map(|own| own.storage.bytes()).sum()
    }

    /// `%tid` of a lane.
    pub(super) fn thread(&self, warp: u32, lane: usize) -> [u32; 3] {
        self.warps[warp as usize].thread(lane)
    }

    /// A thread that has not ended, and where it is.
    pub(super) fn stuck(&self) -> Option<Failure> {
        let warp = self.warps.iter().find(|own| !own.groups.is_empty())?;
        let group = &warp.groups[0];
        let kind = FaultKind::Deadlock("threads of a block wait at different barriers");
        Some(Failure {
            stop: Fault::first(group.mask, kind),
            pc: group.pc,
            warp: warp.number,
        })
    }

    /// Gives each warp a turn.
    pub(super) fn run(&mut self, with: &mut Together<'_, '_>) -> Result<BlockPause, Failure> {
        let limit = with.limit;
        let mut is_blocked = true;
        let mut is_waiting = true;
        for _ in 0..self.warps.len() {
            let at = self.order[self.next];
            self.next = (self.next + 1) % self.order.len();
            let warp = &mut self.warps[at];
            if warp.groups.is_empty() {
                continue;
            }
            let before = warp.steps;
            let fuel = SLICE.min(limit.saturating_sub(before)).max(1);
            let mut surroundings = Surroundings {
                code: with.code,
                grid: with.grid,
                block: self.id,
                cluster: &mut *with.cluster,
                cluster_barrier: &mut *with.cluster_barrier,
                regions: &mut *with.regions,
                barriers: &mut self.barriers,
                clock: self.clock,
            };
            let pause = warp.run(&mut surroundings, fuel)?;
            self.clock += warp.steps - before;
            if warp.steps >= limit && pause != Pause::Ended {
                let group = &warp.groups[0];
                return Err(Failure {
                    stop: Fault::first(group.mask, FaultKind::StepLimit(limit)),
                    pc: group.pc,
                    warp: warp.number,
                });
            }
            is_blocked &= pause == Pause::Blocked;
            is_waiting &= pause == Pause::Blocked || pause == (Pause::Fuel { is_waiting: true });
            let alive: Vec<u32> = self.warps.iter().map(|own| own.alive).collect();
            if self.barriers.pass(&alive) {
                (is_blocked, is_waiting) = (false, false);
            }
        }
        if self.warps.iter().all(|own| own.groups.is_empty()) {
            return Ok(BlockPause::Ended);
        }
        if is_blocked {
            return Ok(BlockPause::Blocked);
        }
        Ok(BlockPause::Turn { is_waiting })
    }
}

/// `%tid` of the lanes of a warp.
fn coordinates(first: usize, extent: [u32; 3]) -> [Lanes<u32>; 3] {
    let [width, height, _] = extent.map(|own| own.max(1));
    let linear = |lane: usize| (first + lane) as u32;
    [
        lanes(|lane| linear(lane) % width),
        lanes(|lane| linear(lane) / width % height),
        lanes(|lane| linear(lane) / width / height),
    ]
}
