//! The memory of a device.

use cuguard_driver::result::memory;

use crate::error::Result;
use crate::guards::Context;
#[cfg(doc)]
use crate::guards::ContextBuilder;
use crate::recovery;

/// The memory of a device, as the driver reports it (`cuMemGetInfo`).
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// let context = cuguard::Context::new(0)?;
/// let memory = context.memory()?;
/// assert!(memory.free < memory.total);
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryInfo {
    /// Free memory, in bytes.
    pub free: u64,
    /// Total memory, in bytes.
    pub total: u64,
}

impl Context {
    /// The free and total memory of the device.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// let context = cuguard::Context::new(0)?;
    /// let before = context.memory()?.free;
    /// let buffer = cuguard::DeviceBuffer::<u8>::zeroed(&context, 8 << 20)?;
    /// assert!(context.memory()?.free < before);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any driver error.
    #[doc(alias("mem_get_info", "cuMemGetInfo", "cudaMemGetInfo"))]
    pub fn memory(&self) -> Result<MemoryInfo> {
        let entered = self.state().enter_to_wait("Context::memory")?;
        let info = entered.check(memory::info())?;
        Ok(MemoryInfo {
            free: info.free as u64,
            total: info.total as u64,
        })
    }

    /// The largest block that can be allocated now, in whole pages of the device, within the
    /// [memory limit](ContextBuilder::memory_limit). A binary search with dozens of allocations and frees: meanwhile
    /// allocations of other threads may fail. Pools release unused memory for it, so the block may be larger than
    /// [`MemoryInfo::free`].
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// let context = cuguard::Context::new(0)?;
    /// assert!(context.largest_block()? > 0);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any driver error.
    pub fn largest_block(&self) -> Result<u64> {
        recovery::largest_block(self.state(), "Context::largest_block")
    }
}
