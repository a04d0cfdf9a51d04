//! Executes the blocks of a cluster in turn, on one thread of the host: they share memory.

use super::barriers::ClusterBarrier;
use super::block::{Block, BlockPause, Together};
use super::code::Code;
use super::warp::Failure;
use crate::machine::{BlockId, Cluster, Fault, FaultKind, Grid, Regions, SharedMemory};

/// A cluster; a block where the launch has none.
#[derive(Debug)]
pub(super) struct ClusterRun {
    blocks: Vec<Block>,
    cluster: Cluster,
    barrier: ClusterBarrier,
}

/// Whether a cluster has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClusterPause {
    Ended,
    /// It may wait for another cluster, or has had its turn.
    Waiting,
}

/// A failure of a thread.
#[derive(Debug)]
pub(super) struct ThreadFailure {
    pub(super) failure: Failure,
    pub(super) block: [u32; 3],
    pub(super) thread: [u32; 3],
}

/// How often all blocks of a cluster have their turn before others do, where all of them may be waiting.
const WAITING_TURNS: u32 = 4;

/// How often they have their turn before others do in any case: a loop may wait without an instruction that shows it.
const MAX_TURNS: u32 = 64;

impl ClusterRun {
    /// The cluster with a number. `order` shuffles the warps of a block.
    pub(super) fn new(
        code: &Code,
        grid: &Grid<'_>,
        kernel: usize,
        number: u64,
        order: &impl Fn(u64, usize) -> Vec<usize>,
    ) -> Self {
        let extent = grid.cluster;
        let shared = grid.static_shared as usize + grid.dynamic_shared as usize;
        let ranks = extent.iter().product::<u32>();
        let at = position(
            number,
            [0, 1, 2].map(|axis| grid.blocks[axis] / extent[axis]),
        );
        let blocks = (0..ranks).map(|rank| {
            let in_cluster = position(rank.into(), extent);
            let index = [0, 1, 2].map(|axis| at[axis] * extent[axis] + in_cluster[axis]);
            let id = BlockId {
                index,
                cluster: at,
                in_cluster,
                rank,
            };
            let salt = number * u64::from(ranks) + u64::from(rank);
            Block::new(code, kernel, id, grid.threads, |warps| order(salt, warps))
        });
        Self {
            blocks: blocks.collect(),
            cluster: Cluster {
                shared: (0..ranks).map(|_| SharedMemory::new(shared)).collect(),
            },
            barrier: ClusterBarrier::default(),
        }
    }

    /// Instructions executed: by warps, by threads.
    pub(super) fn steps(&self) -> (u64, u64) {
        let all = self.blocks.iter().map(Block::steps);
        all.fold((0, 0), |sum, own| (sum.0 + own.0, sum.1 + own.1))
    }

    /// Bytes of the host that it needs, about.
    pub(super) fn bytes(&self) -> usize {
        let shared = self.cluster.shared.iter().map(|own| own.len() as usize);
        shared.sum::<usize>() + self.blocks.iter().map(Block::bytes).sum::<usize>()
    }

    /// Executes until all threads have ended, they may wait for others, or they should stop.
    pub(super) fn run<'g>(
        &mut self,
        code: &'g Code,
        grid: &'g Grid<'g>,
        regions: &mut Regions<'g>,
        limit: u64,
        should_stop: &impl Fn() -> bool,
    ) -> Result<ClusterPause, ThreadFailure> {
        let (mut turns, mut waiting_turns) = (0, 0);
        loop {
            let (mut has_ended, mut is_blocked, mut is_waiting) = (true, true, true);
            for block in &mut self.blocks {
                let mut together = Together {
                    code,
                    grid,
                    cluster: &mut self.cluster,
                    cluster_barrier: &mut self.barrier,
                    regions,
                    limit,
                };
                let result = block.run(&mut together);
                let pause = result.map_err(|failure| located(block, failure))?;
                has_ended &= pause == BlockPause::Ended;
                is_blocked &= matches!(pause, BlockPause::Ended | BlockPause::Blocked);
                is_waiting &= !matches!(pause, BlockPause::Turn { is_waiting: false });
            }
            if has_ended {
                return Ok(ClusterPause::Ended);
            }
            let has_passed = self.barrier.pass(self.blocks.iter().flat_map(Block::alive));
            if is_blocked && !has_passed {
                return Err(self.stuck());
            }
            let waits = is_waiting && !has_passed;
            waiting_turns = if waits { waiting_turns + 1 } else { 0 };
            turns += 1;
            if waiting_turns == WAITING_TURNS || turns == MAX_TURNS || should_stop() {
                return Ok(ClusterPause::Waiting);
            }
        }
    }

    fn stuck(&self) -> ThreadFailure {
        let stuck = self
            .blocks
            .iter()
            .find_map(|block| Some((block, block.stuck()?)));
        if let Some((block, failure)) = stuck {
            return located(block, failure);
        }
        let kind = FaultKind::Deadlock("all threads wait");
        ThreadFailure {
            failure: Failure {
                stop: Fault::new(0, kind),
                pc: 0,
                warp: 0,
            },
            block: [0; 3],
            thread: [0; 3],
        }
    }
}

fn located(block: &Block, failure: Failure) -> ThreadFailure {
    ThreadFailure {
        block: block.index(),
        thread: block.thread(failure.warp, failure.stop.lane),
        failure,
    }
}

/// The position of a number in an extent, counted along x first.
pub(super) fn position(number: u64, [width, height, _]: [u32; 3]) -> [u32; 3] {
    let (width, height) = (u64::from(width.max(1)), u64::from(height.max(1)));
    let (row, layer) = (number / width % height, number / width / height);
    [(number % width) as u32, row as u32, layer as u32]
}
