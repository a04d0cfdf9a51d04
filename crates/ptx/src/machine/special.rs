//! The values of special registers.

use super::lanes::{LANES, Lanes, lanes};
use super::warp::Warp;
use crate::program::Special;

/// The simulated device's multiprocessors.
const MULTIPROCESSORS: u32 = 132;

fn component(of: [u32; 3], index: u8, rest: u32) -> u64 {
    of.get(usize::from(index)).copied().unwrap_or(rest).into()
}

impl Warp<'_, '_> {
    /// The values of a special register.
    pub(crate) fn special(&self, special: Special) -> Lanes<u64> {
        match special {
            Special::Tid(index) => match self.threads.get(usize::from(index)) {
                Some(own) => lanes(|lane| own[lane].into()),
                None => [0; LANES],
            },
            Special::Laneid => lanes(|lane| lane as u64),
            Special::LanemaskEq => lanes(|lane| 1 << lane),
            Special::LanemaskLt => lanes(|lane| (1 << lane) - 1),
            Special::LanemaskLe => lanes(|lane| (2 << lane) - 1),
            Special::LanemaskGt => lanes(|lane| u64::from(u32::MAX) & !((2 << lane) - 1)),
            Special::LanemaskGe => lanes(|lane| u64::from(u32::MAX) & !((1 << lane) - 1)),
            _ => [self.uniform_special(special); LANES],
        }
    }

    fn uniform_special(&self, special: Special) -> u64 {
        let (grid, block) = (self.grid, &self.block);
        let blocks =
            |extent: [u32; 3]| u64::from(extent[0]) * u64::from(extent[1]) * u64::from(extent[2]);
        match special {
            Special::Ntid(index) => component(grid.threads, index, 1),
            Special::Ctaid(index) => component(block.index, index, 0),
            Special::Nctaid(index) => component(grid.blocks, index, 1),
            Special::Clusterid(index) => component(block.cluster, index, 0),
            Special::Nclusterid(index) => {
                let count = |at: usize| grid.blocks[at] / grid.cluster[at].max(1);
                component([count(0), count(1), count(2)], index, 1)
            }
            Special::ClusterCtaid(index) => component(block.in_cluster, index, 0),
            Special::ClusterNctaid(index) => component(grid.cluster, index, 1),
            Special::ClusterCtarank => block.rank.into(),
            Special::ClusterNctarank => blocks(grid.cluster),
            Special::IsExplicitCluster => grid.is_explicit_cluster.into(),
            Special::Warpid => self.number.into(),
            Special::Nwarpid => 64,
            Special::Smid => {
                let [x, y, z] = block.index.map(u64::from);
                let [width, height, _] = grid.blocks.map(u64::from);
                (x + width * (y + height * z)) % u64::from(MULTIPROCESSORS)
            }
            Special::Nsmid => MULTIPROCESSORS.into(),
            Special::Gridid => grid.grid_id,
            Special::Clock64 => self.clock,
            Special::Clock => self.clock & u64::from(u32::MAX),
            Special::ClockHi => self.clock >> 32,
            Special::Globaltimer => grid.host.nanoseconds(),
            Special::GlobaltimerLo => grid.host.nanoseconds() & u64::from(u32::MAX),
            Special::GlobaltimerHi => grid.host.nanoseconds() >> 32,
            // The address of what cooperative groups keep of the grid.
            Special::Envreg(1) => grid.workspace >> 32,
            Special::Envreg(2) => grid.workspace & u64::from(u32::MAX),
            Special::DynamicSmemSize => grid.dynamic_shared.into(),
            Special::TotalSmemSize | Special::AggrSmemSize => {
                (grid.static_shared + grid.dynamic_shared).into()
            }
            _ => 0,
        }
    }
}
