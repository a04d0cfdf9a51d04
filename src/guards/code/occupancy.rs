//! Occupancy: how many blocks of a kernel a multiprocessor runs at a time.

use cuguard_driver::result::{self, function};
use cuguard_driver::sys::{CUfunction, CUlaunchConfig, CUstream};

use super::function::Function;
use super::function_info::Limits;
use super::launch_config::{LaunchConfig, SuggestedBlock};
use crate::core::{ContextState, Entered, Failed, Refused};
use crate::error::{Error, Result};

/// An error of a query, where too little memory is an error as any other.
fn plain(entered: &Entered<'_>, failed: Failed) -> Error {
    match failed {
        Failed::OutOfMemory(Refused::Memory(error)) => match entered.check::<()>(Err(error)) {
            Err(error) => error,
            Ok(()) => unreachable!("the result is an error"),
        },
        // Only allocations are subject to limits, and only graphs are checked.
        Failed::OutOfMemory(
            Refused::Limit { .. } | Refused::PoolLimit { .. } | Refused::NotLaunched,
        ) => unreachable!("nothing is allocated"),
        Failed::Other(error) => *error,
    }
}

impl<'module> Function<'module> {
    /// The limits of launches, for a query.
    fn query(&self, entered: &Entered<'_>, state: &ContextState) -> Result<&'module Limits> {
        let limits = self.info().limits(entered, state, *self.handle());
        limits.map_err(|failed| plain(entered, failed))
    }

    /// How many blocks of `threads` threads, with `shared_bytes` of dynamic shared memory each, a multiprocessor runs at a
    /// time. A [cooperative](LaunchConfig::cooperative) launch can have this many for each multiprocessor.
    ///
    /// ```standalone_crate
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let module = cuguard::Module::from_ptx(&context, include_str!("../../../kernels/saxpy.ptx"))?;
    /// let saxpy = module.function("saxpy")?;
    /// assert_eq!(saxpy.max_active_blocks(1024, 0)?, 2);
    /// assert_eq!(saxpy.max_active_blocks(1024, 200_000)?, 1);
    /// let error = saxpy.max_active_blocks(1025, 0).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "Function::max_active_blocks of saxpy: block.x is 1025, which is not within 1 to 1024"
    /// );
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::OutsideLimits`], [`Error::ContextClosed`], or any other driver error.
    pub fn max_active_blocks(&self, threads: u32, shared_bytes: u32) -> Result<u32> {
        let (blocks, _) =
            self.active_blocks("Function::max_active_blocks", threads, shared_bytes)?;
        Ok(blocks)
    }

    /// The blocks that a multiprocessor runs at a time, and the limits of launches.
    fn active_blocks(
        &self,
        operation: &'static str,
        threads: u32,
        shared_bytes: u32,
    ) -> Result<(u32, &'module Limits)> {
        let entered = self.state().enter(operation)?;
        let config = LaunchConfig::new(1, threads).shared_bytes(shared_bytes);
        let limits = self.query(&entered, self.state())?;
        limits.check(operation, self.info(), &config)?;
        // As the launch will be.
        let handle = *self.handle();
        entered.check(self.info().allow_shared(handle, shared_bytes))?;
        let shared = shared_bytes as usize;
        // SAFETY: the module is borrowed, and its context is open.
        let blocks = unsafe { function::max_active_blocks(handle, threads as i32, shared) };
        Ok((entered.check(blocks)?.max(0) as u32, limits))
    }

    /// The most blocks of a [cooperative](LaunchConfig::cooperative) launch: as many as the whole device runs at a time.
    ///
    /// # Errors
    ///
    /// As [`max_active_blocks`](Self::max_active_blocks).
    pub fn max_cooperative_blocks(&self, threads: u32, shared_bytes: u32) -> Result<u32> {
        let operation = "Function::max_cooperative_blocks";
        let (blocks, limits) = self.active_blocks(operation, threads, shared_bytes)?;
        Ok(blocks.saturating_mul(limits.multiprocessors))
    }

    /// The most blocks that a [cluster](LaunchConfig::cluster) of such a launch can have.
    ///
    /// # Errors
    ///
    /// [`Error::OutsideLimits`], [`Error::UnsupportedLaunch`], [`Error::ContextClosed`], or any other driver error.
    pub fn max_cluster_blocks(&self, config: &LaunchConfig) -> Result<u32> {
        // With a cluster that is too large, the query fails as the launch does.
        let config = LaunchConfig {
            cluster: None,
            ..*config
        };
        self.query_clusters("Function::max_cluster_blocks", &config, |handle, own| {
            // SAFETY: the module is borrowed, and its context is open; the configuration has the attributes.
            unsafe { function::max_potential_cluster_size(handle, own) }
        })
    }

    /// How many [clusters](LaunchConfig::cluster) of such a launch the device runs at a time.
    ///
    /// # Errors
    ///
    /// [`Error::OutsideLimits`], [`Error::UnsupportedLaunch`], [`Error::ContextClosed`], or any other driver error.
    pub fn max_active_clusters(&self, config: &LaunchConfig) -> Result<u32> {
        self.query_clusters("Function::max_active_clusters", config, |handle, own| {
            // SAFETY: the module is borrowed, and its context is open; the configuration has the attributes.
            unsafe { function::max_active_clusters(handle, own) }
        })
    }

    fn query_clusters(
        &self,
        operation: &'static str,
        config: &LaunchConfig,
        query: impl FnOnce(CUfunction, &CUlaunchConfig) -> result::Result<i32>,
    ) -> Result<u32> {
        let entered = self.state().enter(operation)?;
        let limits = self.query(&entered, self.state())?;
        limits.check(operation, self.info(), config)?;
        // As the launch will be.
        let (info, handle) = (self.info(), *self.handle());
        entered.check(info.allow_shared(handle, config.shared_bytes))?;
        let count = config.with_attributes(CUstream::NULL, |own| query(handle, own));
        Ok(entered.check(count)?.max(0) as u32)
    }

    /// The block size with the highest occupancy, for blocks with `shared_bytes` of dynamic shared memory.
    ///
    /// ```standalone_crate
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let module = cuguard::Module::from_ptx(&context, include_str!("../../../kernels/saxpy.ptx"))?;
    /// let saxpy = module.function("saxpy")?;
    /// let suggested = saxpy.suggested_block_size(0)?;
    /// let blocks = saxpy.max_active_blocks(suggested.threads, 0)?;
    /// assert_eq!(suggested.min_grid % blocks, 0);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`max_active_blocks`](Self::max_active_blocks).
    pub fn suggested_block_size(&self, shared_bytes: u32) -> Result<SuggestedBlock> {
        self.suggest("Function::suggested_block_size", shared_bytes)
    }

    fn suggest(&self, operation: &'static str, shared_bytes: u32) -> Result<SuggestedBlock> {
        let entered = self.state().enter(operation)?;
        let limits = self.query(&entered, self.state())?;
        let config = LaunchConfig::new(1, 1).shared_bytes(shared_bytes);
        limits.check(operation, self.info(), &config)?;
        let handle = *self.handle();
        entered.check(self.info().allow_shared(handle, shared_bytes))?;
        // SAFETY: the module is borrowed, and its context is open.
        let size = unsafe { function::max_potential_block_size(handle, shared_bytes as usize, 0) };
        let size = entered.check(size)?;
        Ok(SuggestedBlock {
            threads: size.block.max(1) as u32,
            min_grid: size.min_grid.max(1) as u32,
        })
    }

    /// The dynamic shared memory that each block can have if `blocks` blocks of `threads` threads are to run on a
    /// multiprocessor at a time.
    ///
    /// ```standalone_crate
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let module = cuguard::Module::from_ptx(&context, include_str!("../../../kernels/saxpy.ptx"))?;
    /// let saxpy = module.function("saxpy")?;
    /// assert!(saxpy.available_shared_bytes(4, 128)? < saxpy.available_shared_bytes(1, 128)?);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::OutsideLimits`], [`Error::ContextClosed`], or any other driver error.
    pub fn available_shared_bytes(&self, blocks: u32, threads: u32) -> Result<u32> {
        const OPERATION: &str = "Function::available_shared_bytes";
        let entered = self.state().enter(OPERATION)?;
        let limits = self.query(&entered, self.state())?;
        limits.check(OPERATION, self.info(), &LaunchConfig::new(1, threads))?;
        // The driver counts what launches are allowed now, and ours are allowed all that they need.
        let (handle, threads) = (*self.handle(), threads as i32);
        entered.check(self.info().allow_shared(handle, limits.shared))?;
        let fits = |bytes| {
            // SAFETY: the module is borrowed, and its context is open.
            let blocks = unsafe { function::max_active_blocks(handle, threads, bytes) };
            entered.check(blocks).map(|blocks| blocks.max(0) as u32)
        };
        let most = fits(0)?;
        if !(1..=most).contains(&blocks) {
            return Err(Error::OutsideLimits {
                operation: OPERATION,
                subject: self.name().to_owned(),
                what: "the number of blocks per multiprocessor",
                value: blocks.into(),
                least: 1,
                most: most.into(),
            });
        }
        // SAFETY: the module is borrowed, and its context is open.
        let bytes = unsafe { function::available_dynamic_shared(handle, blocks as i32, threads) };
        let bytes = entered.check(bytes)?;
        let enough = fits(bytes)? >= blocks;
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        if enough {
            return Ok(bytes);
        }
        // The driver (580) forgets what the system uses of a block's shared memory.
        Ok(bytes.saturating_sub(limits.reserved_shared))
    }

    /// See [`LaunchConfig::for_elements`].
    pub(crate) fn config_for(&self, operation: &'static str, count: usize) -> Result<LaunchConfig> {
        let suggested = match self.info().suggested.get() {
            Some(suggested) => *suggested,
            None => {
                let suggested = self.suggest(operation, 0)?;
                *self.info().suggested.get_or_init(|| suggested)
            }
        };
        let blocks = count.div_ceil(suggested.threads as usize).max(1);
        // The limit was read for the suggestion.
        let most = self.info().max_grid_x().unwrap_or(i32::MAX as u32);
        match u32::try_from(blocks) {
            Ok(grid) if grid <= most => Ok(LaunchConfig::new(grid, suggested.threads)),
            _ => Err(Error::OutsideLimits {
                operation,
                subject: self.name().to_owned(),
                what: "the number of elements",
                value: count as u64,
                least: 0,
                most: u64::from(most) * u64::from(suggested.threads),
            }),
        }
    }
}

impl LaunchConfig {
    /// One thread for each of `count` elements, in blocks of the size that
    /// [occupancy](Function::suggested_block_size) suggests. The last block may have more threads than elements are left,
    /// so the kernel must compare its index with `count`. For 0 elements there is one block.
    ///
    /// A grid has up to 2³¹ - 1 blocks, so `count` may exceed 2³². CUDA's `blockIdx`, `blockDim` and `threadIdx` are 32 bits
    /// wide: near 2³² elements and beyond, the kernel must compute its index in 64 bits, as in
    /// `(size_t)blockIdx.x * blockDim.x + threadIdx.x`; an index of type `int` overflows at 2³¹.
    ///
    /// The suggestion is made once for each kernel: later calls do not call the driver.
    ///
    /// ```standalone_crate
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, LaunchConfig, Module};
    /// # let context = Context::new(0)?;
    /// # let module = Module::from_ptx(&context, include_str!("../../../kernels/saxpy.ptx"))?;
    /// let saxpy = module.function("saxpy")?;
    /// let config = LaunchConfig::for_elements(&saxpy, 1_000_000)?;
    /// let ([blocks, ..], [threads, ..]) = (config.grid(), config.block());
    /// assert!(blocks * threads >= 1_000_000 && (blocks - 1) * threads < 1_000_000);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::OutsideLimits`], with the largest `count`, if a grid cannot have that many blocks, [`Error::ContextClosed`], or
    /// any other driver error.
    #[doc(alias = "for_num_elems")]
    pub fn for_elements(function: &Function<'_>, count: usize) -> Result<Self> {
        function.config_for("LaunchConfig::for_elements", count)
    }
}
