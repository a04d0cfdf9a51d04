//! Occupancy of clusters: how many of them run on the device at a time.

use cuguard_sys::{CUfunction, CUlaunchConfig, CUresult, launch_attribute_id};

use super::function::find_any;
use super::launch::read_config;
use super::launch_limits::{MAX_PORTABLE_CLUSTER, max_cluster};
use super::occupancy::active_blocks;
use super::{read, write_out};
use crate::result::{DriverResult, check, valid};
use crate::state::lock;

/// The multiprocessors of an H200 in groups, as measured: a cluster is within a group that has at least as many of them as
/// the cluster has blocks.
const GROUPS: [u32; 8] = [16, 16, 16, 16, 16, 18, 18, 8];
/// The others are in pairs.
const IN_PAIRS: u32 = 8;
/// The most blocks of clusters on a multiprocessor.
const MAX_BLOCKS: u32 = 8;

/// The number of clusters of this many blocks that run at a time, with so many blocks on each multiprocessor.
fn active_clusters(cluster: u32, blocks: u32) -> u32 {
    let groups = GROUPS.into_iter().filter(|group| *group >= cluster);
    let in_groups: u32 = groups.map(|group| group * blocks / cluster).sum();
    let in_pairs = if cluster <= 2 {
        IN_PAIRS * blocks / cluster
    } else {
        0
    };
    in_groups + in_pairs
}

/// What both queries find: the blocks of a cluster (0 without one), how many of them fit on a multiprocessor, and the
/// largest cluster.
///
/// # Safety
///
/// The configuration is null or can be read, with its attributes.
unsafe fn query(
    function: CUfunction,
    config: *const CUlaunchConfig,
) -> DriverResult<(u32, u32, u32)> {
    // SAFETY: as the caller guarantees.
    let config = unsafe { read(config) }?;
    // SAFETY: as the caller guarantees.
    let (launch, attributes) = unsafe { read_config(function, &config) }?;
    let has_cluster = attributes.contains(&launch_attribute_id::CLUSTER_DIMENSION);
    valid(
        launch
            .grid
            .into_iter()
            .chain(launch.block)
            .all(|dim| dim > 0),
    )?;
    let mut state = lock();
    let id = find_any(&mut state, function)?;
    let own = state.code.function(id)?;
    let most = max_cluster(&own.settings);
    let dims = launch.cluster.into_iter().zip(launch.grid);
    let divides = dims
        .clone()
        .all(|(cluster, grid)| cluster > 0 && grid % cluster == 0);
    let cluster = launch.cluster.into_iter().fold(1, u32::saturating_mul);
    let allowed = cluster <= MAX_PORTABLE_CLUSTER || most > MAX_PORTABLE_CLUSTER;
    check(divides && allowed, CUresult::INVALID_CLUSTER_SIZE)?;
    let threads = launch.block.into_iter().fold(1, u32::saturating_mul);
    let blocks = active_blocks(own.kernel, &own.settings, threads, launch.shared as usize);
    let cluster = if has_cluster { cluster } else { 0 };
    Ok((cluster, blocks.min(MAX_BLOCKS), most))
}

pub unsafe fn cuOccupancyMaxActiveClusters(
    out: *mut i32,
    function: CUfunction,
    config: *const CUlaunchConfig,
) -> DriverResult {
    valid(!out.is_null())?;
    // SAFETY: as the caller guarantees.
    let (cluster, blocks, most) = unsafe { query(function, config) }?;
    let clusters = match cluster {
        0 => 0,
        cluster if cluster > most => 0,
        cluster => active_clusters(cluster, blocks),
    };
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, clusters as i32) }
}

pub unsafe fn cuOccupancyMaxPotentialClusterSize(
    out: *mut i32,
    function: CUfunction,
    config: *const CUlaunchConfig,
) -> DriverResult {
    valid(!out.is_null())?;
    // SAFETY: as the caller guarantees.
    let (_, blocks, most) = unsafe { query(function, config) }?;
    let size = if blocks > 0 { most } else { 0 };
    // SAFETY: as the caller guarantees.
    unsafe { write_out(out, size as i32) }
}

#[cfg(test)]
mod tests {
    use super::active_clusters;

    /// What an H200 returned, for 2, 4 and 8 blocks on a multiprocessor.
    #[test]
    fn clusters_are_as_many_as_measured() {
        for (cluster, want) in [
            (1, [264, 528, 1056]),
            (2, [132, 264, 528]),
            (3, [79, 163, 327]),
            (4, [62, 124, 248]),
            (8, [30, 62, 124]),
        ] {
            let found = [2, 4, 8].map(|blocks| active_clusters(cluster, blocks));
            assert_eq!(found, want, "clusters of {cluster}");
        }
        assert_eq!([2, 8].map(|blocks| active_clusters(16, blocks)), [14, 58]);
    }
}
