//! What a launch must fulfil: the dimensions of grid, block and cluster, and the shared memory.

use cuguard_sys::{CUfunction, CUresult};

use super::function::{max_dynamic_shared, max_threads};
use super::occupancy::{MULTIPROCESSORS, active_blocks};
use crate::code::Kernel;
use crate::result::DriverResult;
use crate::state::Settings;
use crate::trace::require;

/// A launch of a kernel, on a stream or as a node of a graph.
#[derive(Clone, Copy, Debug)]
pub(super) struct Launch {
    pub(super) function: CUfunction,
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub(super) shared: u32,
    /// The blocks of a cluster.
    pub(super) cluster: [u32; 3],
    pub(super) cooperative: bool,
}

impl Launch {
    /// With the cluster that the kernel requires, unless the launch has one.
    pub(super) fn for_kernel(&self, kernel: &Kernel, settings: &Settings) -> Self {
        let set = settings.cluster.map(|dim| u32::try_from(dim).unwrap_or(0));
        let set = (set[0] > 0).then(|| set.map(|dim| dim.max(1)));
        match kernel.cluster.or(set) {
            Some(cluster) if self.cluster == [1; 3] => Self { cluster, ..*self },
            _ => *self,
        }
    }
}

/// The limits of a grid.
const MAX_GRID: [u32; 3] = [0x7fff_ffff, 65_535, 65_535];
/// The limits of a block in each dimension.
const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
/// The most blocks of a cluster on every device, and on this one, for kernels that allow it.
pub(super) const MAX_PORTABLE_CLUSTER: u32 = 8;
const MAX_CLUSTER: u32 = 16;

/// The most blocks of a cluster of this kernel.
pub(super) fn max_cluster(settings: &Settings) -> u32 {
    match settings.non_portable_cluster {
        0 => MAX_PORTABLE_CLUSTER,
        _ => MAX_CLUSTER,
    }
}

/// Fails unless the kernel can be launched with these dimensions and this shared memory.
pub(super) fn check_limits(kernel: &Kernel, settings: &Settings, launch: &Launch) -> DriverResult {
    check_dimensions(kernel, settings, launch)?;
    let (shared, most) = (launch.shared, max_dynamic_shared(kernel, settings));
    require(
        i64::from(shared) <= i64::from(most),
        CUresult::INVALID_VALUE,
        || format!("the launch has {shared} bytes of dynamic shared memory, the limit is {most}"),
    )?;
    if launch.cooperative {
        let threads = u32::try_from(count(launch.block)).unwrap_or(u32::MAX);
        let blocks = active_blocks(kernel, settings, threads, shared as usize);
        let most = u64::from(blocks) * u64::from(MULTIPROCESSORS);
        let grid = count(launch.grid);
        require(grid <= most, CUresult::COOPERATIVE_LAUNCH_TOO_LARGE, || {
            format!("the grid of the cooperative launch has {grid} blocks, the limit is {most}")
        })?;
    }
    Ok(())
}

fn check_dimensions(kernel: &Kernel, settings: &Settings, launch: &Launch) -> DriverResult {
    let valid = |holds, why: &dyn Fn() -> String| require(holds, CUresult::INVALID_VALUE, why);
    let (grid, block) = (launch.grid, launch.block);
    let (threads, most) = (count(block), max_threads(kernel));
    valid(threads <= u64::from(most), &|| {
        format!("the block has {threads} threads, the limit is {most}")
    })?;
    for (what, dims, max) in [("grid", grid, MAX_GRID), ("block", block, MAX_BLOCK)] {
        let within = dims
            .iter()
            .zip(max)
            .all(|(dim, max)| (1..=max).contains(dim));
        valid(within, &|| {
            let (dims, max) = (product(dims), product(max));
            format!("the {what} is {dims}, each dimension must be at least 1, the limits are {max}")
        })?;
    }
    if let Some(required) = kernel.block {
        valid(required == block, &|| {
            let (block, required) = (product(block), product(required));
            format!("the block is {block}, the kernel requires {required} (.reqntid)")
        })?;
    }
    let cluster = launch.cluster;
    let (blocks, most) = (count(cluster), max_cluster(settings));
    require(
        blocks <= u64::from(most),
        CUresult::INVALID_CLUSTER_SIZE,
        || format!("the cluster has {blocks} blocks, the limit is {most}"),
    )?;
    let mut pairs = grid.iter().zip(cluster);
    let divides = pairs.all(|(grid, cluster)| cluster > 0 && grid % cluster == 0);
    require(divides, CUresult::INVALID_CLUSTER_SIZE, || {
        let (grid, cluster) = (product(grid), product(cluster));
        format!("the grid is {grid}, no multiple of the cluster, which is {cluster}")
    })
}

/// The number of blocks or threads.
fn count(dims: [u32; 3]) -> u64 {
    let dims = dims.into_iter().map(u64::from);
    dims.fold(1, u64::saturating_mul)
}

/// Dimensions in a message.
fn product([x, y, z]: [u32; 3]) -> String {
    format!("{x} x {y} x {z}")
}
