//! The configuration of a launch: grid, block, shared memory, cluster.

use cuguard_driver::sys::{CUlaunchAttribute, CUlaunchConfig, CUstream, launch_attribute_id};

#[cfg(doc)]
use super::Function;
use super::dim3::Dim3;

/// How a kernel is launched: the blocks of the grid, the threads of a block, the dynamic shared memory of a block.
///
/// A pair of grid and block is one, each a number or a tuple of up to three:
///
/// ```
/// use cuguard::LaunchConfig;
///
/// let config = LaunchConfig::from((4, 256));
/// assert_eq!(config, LaunchConfig::new(4, 256));
/// let config = LaunchConfig::from(((16, 16), (8, 8, 4)));
/// assert_eq!(config.grid(), [16, 16, 1]);
/// assert_eq!(config.block(), [8, 8, 4]);
///
/// let config = LaunchConfig::new(132, 1024).shared_bytes(64 << 10).cooperative();
/// # assert!(config.is_cooperative());
/// ```
///
/// [`Scope::launch`](crate::Scope::launch) checks it against the limits of the device and the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use]
pub struct LaunchConfig {
    pub(crate) grid: [u32; 3],
    pub(crate) block: [u32; 3],
    pub(crate) shared_bytes: u32,
    pub(crate) cooperative: bool,
    pub(crate) cluster: Option<[u32; 3]>,
}

/// A block size with the highest occupancy; see [`Function::suggested_block_size`].
///
/// ```standalone_crate
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// # let context = cuguard::Context::new(0)?;
/// # let module = cuguard::Module::from_ptx(&context, include_str!("../../../kernels/saxpy.ptx"))?;
/// let suggested = module.function("saxpy")?.suggested_block_size(0)?;
/// assert_eq!(suggested.threads % 32, 0);
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SuggestedBlock {
    /// The threads of a block.
    pub threads: u32,
    /// How many such blocks the whole device runs at a time: a grid with fewer leaves a part of it idle.
    pub min_grid: u32,
}

impl LaunchConfig {
    /// `grid` blocks of `block` threads, each a number or a tuple of up to three.
    pub fn new(grid: impl Into<Dim3>, block: impl Into<Dim3>) -> Self {
        Self {
            grid: grid.into().to_array(),
            block: block.into().to_array(),
            shared_bytes: 0,
            cooperative: false,
            cluster: None,
        }
    }

    /// The dynamic shared memory of a block. A launch with more than 48 KiB first allows it for its kernel.
    pub fn shared_bytes(mut self, bytes: u32) -> Self {
        self.shared_bytes = bytes;
        self
    }

    /// Runs all blocks at the same time, so that they can synchronize with each other. The grid must fit on the device:
    /// [`Function::max_active_blocks`] blocks on each multiprocessor.
    pub fn cooperative(mut self) -> Self {
        self.cooperative = true;
        self
    }

    /// The blocks of a cluster, a number or a tuple of up to three: blocks that run at the same time and reach each other's
    /// shared memory. Each dimension must divide that of the grid. Needs compute capability 9.0.
    pub fn cluster(mut self, cluster: impl Into<Dim3>) -> Self {
        self.cluster = Some(cluster.into().to_array());
        self
    }

    /// The blocks of the grid, as x, y, z.
    #[must_use]
    pub fn grid(&self) -> [u32; 3] {
        self.grid
    }

    /// The threads of a block, as x, y, z.
    #[must_use]
    pub fn block(&self) -> [u32; 3] {
        self.block
    }

    /// Whether it is a cooperative launch.
    #[must_use]
    pub fn is_cooperative(&self) -> bool {
        self.cooperative
    }

    /// Calls `call` with the driver's form of this configuration.
    pub(crate) fn with_attributes<R>(
        &self,
        stream: CUstream,
        call: impl FnOnce(&CUlaunchConfig) -> R,
    ) -> R {
        // SAFETY: plain numbers, of which each may be zero.
        let mut attributes: [CUlaunchAttribute; 2] = unsafe { std::mem::zeroed() };
        let mut count = 0;
        if self.cooperative {
            attributes[count].id = launch_attribute_id::COOPERATIVE;
            attributes[count].value.cooperative = 1;
            count += 1;
        }
        if let Some([x, y, z]) = self.cluster {
            attributes[count].id = launch_attribute_id::CLUSTER_DIMENSION;
            // SAFETY: all bits of the value are zero, which is valid for every field.
            let cluster = unsafe { &mut attributes[count].value.clusterDim };
            (cluster.x, cluster.y, cluster.z) = (x, y, z);
            count += 1;
        }
        call(&CUlaunchConfig {
            gridDimX: self.grid[0],
            gridDimY: self.grid[1],
            gridDimZ: self.grid[2],
            blockDimX: self.block[0],
            blockDimY: self.block[1],
            blockDimZ: self.block[2],
            sharedMemBytes: self.shared_bytes,
            hStream: stream,
            attrs: attributes.as_mut_ptr(),
            numAttrs: count as u32,
        })
    }

    /// The number of threads of a block.
    #[inline]
    pub(crate) fn threads(&self) -> u64 {
        product(self.block)
    }

    /// The number of blocks per cluster.
    pub(crate) fn cluster_blocks(&self) -> u64 {
        self.cluster.map_or(1, product)
    }

    /// The number of blocks.
    pub(crate) fn blocks(&self) -> u64 {
        product(self.grid)
    }
}

#[inline]
fn product(dims: [u32; 3]) -> u64 {
    let dims = dims.map(u64::from);
    // Two 32-bit numbers cannot overflow; three can.
    (dims[0] * dims[1]).saturating_mul(dims[2])
}

impl<G: Into<Dim3>, B: Into<Dim3>> From<(G, B)> for LaunchConfig {
    fn from((grid, block): (G, B)) -> Self {
        Self::new(grid, block)
    }
}
