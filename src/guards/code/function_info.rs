//! The name and the limits of a kernel. The limits are read once, so that a launch queries nothing.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use cuguard_driver::loaded;
use cuguard_driver::result::{self, device, function};
use cuguard_driver::sys::{CUfunction, CUresult, device_attribute, function_attribute};

use super::launch_config::{LaunchConfig, SuggestedBlock};
use crate::core::lock::lock;
use crate::core::{ContextState, Entered, Failed};
use crate::error::Error;

/// The kernels of a module that were looked up. Nothing is removed, so that a [`Function`](super::Function) can borrow.
#[derive(Debug, Default)]
pub(super) struct FunctionTable(Mutex<HashMap<usize, Arc<FunctionInfo>>>);

impl FunctionTable {
    /// The entry of a kernel.
    pub(super) fn get(&self, handle: CUfunction, name: &str) -> &FunctionInfo {
        let mut table = lock(&self.0);
        let entry = table
            .entry(handle.0)
            .or_insert_with(|| Arc::new(FunctionInfo::new(name)));
        let info = Arc::as_ptr(entry);
        // SAFETY: the table keeps the `Arc`, and so the allocation, for as long as it lives, and only shared references
        // exist.
        unsafe { &*info }
    }
}

#[derive(Debug)]
pub(crate) struct FunctionInfo {
    name: Box<str>,
    /// Read at the first launch, not before: reading loads the kernel's code, which may need memory.
    limits: OnceLock<Limits>,
    /// The dynamic shared memory that the driver accepts for this kernel now. Meaningless before the limits are read.
    granted: AtomicU32,
    /// Held while `granted` is raised: two launches must not overtake each other between the driver and the field.
    raising: Mutex<()>,
    /// The suggestion for launches without dynamic shared memory.
    pub(super) suggested: OnceLock<SuggestedBlock>,
}

/// What a launch of a kernel must not exceed.
#[derive(Debug)]
pub(crate) struct Limits {
    grid: [u32; 3],
    block: [u32; 3],
    /// The threads of a block: what the device allows, and what the kernel's registers allow.
    threads: u32,
    /// The dynamic shared memory of a block, once the kernel is allowed to use it.
    pub(super) shared: u32,
    cooperative: bool,
    clusters: bool,
    pub(super) multiprocessors: u32,
    /// The shared memory of a block that the system uses.
    pub(super) reserved_shared: u32,
    /// The sizes of the parameters; `None` if the driver is older than the query.
    parameters: Option<Box<[usize]>>,
}

impl FunctionInfo {
    fn new(name: &str) -> Self {
        Self {
            name: name.into(),
            limits: OnceLock::new(),
            granted: AtomicU32::new(0),
            raising: Mutex::new(()),
            suggested: OnceLock::new(),
        }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The limits, read by the first call.
    #[inline]
    pub(crate) fn limits(
        &self,
        entered: &Entered<'_>,
        state: &ContextState,
        handle: CUfunction,
    ) -> Result<&Limits, Failed> {
        match self.limits.get() {
            Some(limits) => Ok(limits),
            None => self.read_limits(entered, state, handle),
        }
    }

    #[cold]
    #[inline(never)]
    fn read_limits(
        &self,
        entered: &Entered<'_>,
        state: &ContextState,
        handle: CUfunction,
    ) -> Result<&Limits, Failed> {
        let device = state.device as i32;
        let of_device = |attribute| {
            let value = device::attribute(attribute, device);
            Failed::check(entered, value).map(|value| value.max(0) as u32)
        };
        let of_function = |attribute| {
            // SAFETY: the caller borrows the module, and its context is open.
            let value = unsafe { function::attribute(attribute, handle) };
            Failed::check(entered, value).map(|value| value.max(0) as u32)
        };
        // 0 where the driver is older than the attribute.
        let of_newer_device = |attribute| device::attribute(attribute, device).unwrap_or(0);
        use {device_attribute as of, function_attribute as own};
        let static_shared = of_function(own::SHARED_SIZE_BYTES)?;
        let limits = Limits {
            grid: [
                of_device(of::MAX_GRID_DIM_X)?,
                of_device(of::MAX_GRID_DIM_Y)?,
                of_device(of::MAX_GRID_DIM_Z)?,
            ],
            block: [
                of_device(of::MAX_BLOCK_DIM_X)?,
                of_device(of::MAX_BLOCK_DIM_Y)?,
                of_device(of::MAX_BLOCK_DIM_Z)?,
            ],
            threads: of_function(own::MAX_THREADS_PER_BLOCK)?,
            shared: of_device(of::MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?
                .max(of_device(of::MAX_SHARED_MEMORY_PER_BLOCK)?)
                .saturating_sub(static_shared),
            cooperative: of_newer_device(of::COOPERATIVE_LAUNCH) != 0,
            clusters: of_newer_device(of::CLUSTER_LAUNCH) != 0,
            multiprocessors: of_device(of::MULTIPROCESSOR_COUNT)?,
            reserved_shared: of_newer_device(of::RESERVED_SHARED_MEMORY_PER_BLOCK).max(0) as u32,
            // SAFETY: the caller borrows the module, and its context is open.
            parameters: Failed::check(entered, unsafe { parameter_sizes(handle) })?,
        };
        let granted = of_function(own::MAX_DYNAMIC_SHARED_SIZE_BYTES)?;
        Ok(self.limits.get_or_init(|| {
            self.granted.fetch_max(granted, Ordering::Relaxed);
            limits
        }))
    }

    /// The most blocks of a grid in x: known after the limits were read.
    pub(super) fn max_grid_x(&self) -> Option<u32> {
        Some(self.limits.get()?.grid[0])
    }

    /// The sizes of the kernel's parameters: known after the first launch was prepared, if the driver knows them.
    #[inline]
    pub(crate) fn parameters(&self) -> Option<&[usize]> {
        self.limits.get()?.parameters.as_deref()
    }

    /// Fails for a launch that this device cannot run. Whether an earlier launch has prepared the kernel for this one.
    #[inline]
    pub(super) fn is_prepared(
        &self,
        operation: &'static str,
        config: &LaunchConfig,
    ) -> Result<bool, Error> {
        let Some(limits) = self.limits.get() else {
            return Ok(false);
        };
        limits.check(operation, self, config)?;
        Ok(config.shared_bytes <= self.granted.load(Ordering::Acquire))
    }

    /// Allows launches with this much dynamic shared memory. Without it the driver accepts 48 KiB.
    #[inline]
    pub(crate) fn allow_shared(&self, handle: CUfunction, bytes: u32) -> result::Result {
        if bytes <= self.granted.load(Ordering::Acquire) {
            return Ok(());
        }
        self.raise(handle, bytes)
    }

    #[cold]
    #[inline(never)]
    fn raise(&self, handle: CUfunction, bytes: u32) -> result::Result {
        let _raising = lock(&self.raising);
        if bytes <= self.granted.load(Ordering::Acquire) {
            return Ok(());
        }
        let attribute = function_attribute::MAX_DYNAMIC_SHARED_SIZE_BYTES;
        // SAFETY: the caller borrows the module, and its context is open. The limits have checked that `bytes` fits.
        unsafe { function::set_attribute(handle, attribute, bytes as i32)? };
        // Only now: a launch on another thread that reads it relies on the driver's setting.
        self.granted.store(bytes, Ordering::Release);
        Ok(())
    }
}

/// The sizes of a kernel's parameters; `None` if the driver is older than the query.
///
/// # Safety
///
/// The function's module is loaded.
pub(super) unsafe fn parameter_sizes(handle: CUfunction) -> result::Result<Option<Box<[usize]>>> {
    // Not called where it is missing: the driver loader would log a warning.
    if loaded().is_some_and(|driver| driver.missing().contains(&"cuFuncGetParamInfo")) {
        return Ok(None);
    }
    let mut sizes = Vec::new();
    loop {
        // SAFETY: as the caller ensures.
        match unsafe { function::param_info(handle, sizes.len()) } {
            Ok(info) => sizes.push(info.size),
            Err(error) if error.code == CUresult::INVALID_VALUE => return Ok(Some(sizes.into())),
            // A library that has the symbol and not the function.
            Err(error) if error.code == CUresult::NOT_SUPPORTED => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}

impl Limits {
    /// Fails, naming value and limit, for a launch that this device cannot run.
    #[inline]
    pub(crate) fn check(
        &self,
        operation: &'static str,
        info: &FunctionInfo,
        config: &LaunchConfig,
    ) -> Result<(), Error> {
        let within = |dims: [u32; 3], most: [u32; 3]| {
            dims.iter()
                .zip(most)
                .all(|(dim, most)| (1..=most).contains(dim))
        };
        if within(config.grid, self.grid)
            && within(config.block, self.block)
            && config.threads() <= u64::from(self.threads)
            && config.shared_bytes <= self.shared
            && !config.cooperative
            && config.cluster.is_none()
        {
            return Ok(());
        }
        self.check_each(operation, info, config)
    }

    /// The same for launches that exceed a limit or are not plain.
    #[cold]
    #[inline(never)]
    fn check_each(
        &self,
        operation: &'static str,
        info: &FunctionInfo,
        config: &LaunchConfig,
    ) -> Result<(), Error> {
        let outside = |what, value: u64, least: u64, most: u64| match value {
            value if (least..=most).contains(&value) => Ok(()),
            value => Err(Error::OutsideLimits {
                operation,
                subject: info.name.to_string(),
                what,
                value,
                least,
                most,
            }),
        };
        let unsupported = |reason: String| Error::UnsupportedLaunch {
            operation,
            kernel: info.name.to_string(),
            reason,
        };
        let names = [
            (config.grid, self.grid, ["grid.x", "grid.y", "grid.z"]),
            (config.block, self.block, ["block.x", "block.y", "block.z"]),
        ];
        for (dims, most, names) in names {
            for ((dim, most), name) in dims.into_iter().zip(most).zip(names) {
                outside(name, dim.into(), 1, most.into())?;
            }
        }
        outside(
            "the number of threads per block",
            config.threads(),
            1,
            self.threads.into(),
        )?;
        outside(
            "the dynamic shared memory in bytes",
            config.shared_bytes.into(),
            0,
            self.shared.into(),
        )?;
        if config.cooperative && !self.cooperative {
            return Err(unsupported(
                "the device does not support cooperative launches".to_owned(),
            ));
        }
        let Some(cluster) = config.cluster else {
            return Ok(());
        };
        if !self.clusters {
            return Err(unsupported(
                "the device does not support clusters (compute capability 9.0 does)".to_owned(),
            ));
        }
        let dims = cluster.into_iter().zip(config.grid);
        for ((dim, grid), name) in dims.zip(["cluster.x", "cluster.y", "cluster.z"]) {
            outside(name, dim.into(), 1, grid.into())?;
            if grid % dim != 0 {
                return Err(unsupported(format!(
                    "{name} is {dim}, which does not divide the grid's {grid} blocks"
                )));
            }
        }
        Ok(())
    }
}
