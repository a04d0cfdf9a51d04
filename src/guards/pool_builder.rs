//! The settings of a pool.

use std::sync::Arc;
use std::time::Duration;

use cuguard_driver::result::virtual_memory;
use cuguard_driver::sys::CUresult;

use crate::core::{ContextState, PoolConfig, VirtualPool};
use crate::error::{DriverError, Error, Result};

/// Configures a [`Pool`](crate::Pool); see [`Pool::builder`](crate::Pool::builder). The same settings make the pool that all
/// buffers of a context come from; see [`ContextBuilder::pool`](crate::context::ContextBuilder::pool).
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use std::time::Duration;
/// use cuguard::{Context, DeviceBuffer, Pool};
///
/// let context = Context::new(0)?;
/// let pool = Pool::builder().limit(64 << 20).decay(Duration::from_secs(1)).build(&context)?;
/// assert!(DeviceBuffer::<u8>::zeroed(&pool, 65 << 20).is_err());
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct PoolBuilder {
    config: PoolConfig,
}

impl Default for PoolBuilder {
    fn default() -> Self {
        let settings = cuguard_pool::Settings::default();
        Self {
            config: PoolConfig {
                settings,
                label: None,
            },
        }
    }
}

impl PoolBuilder {
    /// Sets the most memory that the pool may hold of the device, in bytes; an allocation beyond it fails with
    /// [`Error::OutOfMemory`]. It counts pages of 2 MiB, also where blocks use a part of them. The default is no limit.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// use cuguard::{DeviceBuffer, Pool};
    ///
    /// let pool = Pool::builder().limit(4 << 20).build(&context)?;
    /// let first = DeviceBuffer::<u8>::zeroed(&pool, 3 << 20)?;
    /// assert!(DeviceBuffer::<u8>::zeroed(&pool, 3 << 20).is_err());
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn limit(mut self, bytes: u64) -> Self {
        self.config.settings.limit = bytes;
        self
    }

    /// Sets how much idle memory stays in the pool after the [decay](Self::decay) time, in bytes; less, because blocks and handles
    /// of up to 64 MiB are released whole. The default is 0.
    ///
    /// ```
    /// let builder = cuguard::Pool::builder().keep(256 << 20);
    /// ```
    pub fn keep(mut self, bytes: u64) -> Self {
        self.config.settings.keep = bytes;
        self
    }

    /// Sets how long memory stays idle in the pool before it is released to the device. The default is 10 seconds;
    /// `Duration::MAX` is never: then it is released when memory runs short, or by [`Pool::trim`](crate::Pool::trim).
    ///
    /// ```
    /// let builder = cuguard::Pool::builder().decay(std::time::Duration::from_secs(60));
    /// ```
    pub fn decay(mut self, time: Duration) -> Self {
        self.config.settings.decay = time;
        self
    }

    /// Sets whether the last page of a block is shared with another block, where the size is not a multiple of 2 MiB. The
    /// default is `true`; without it, blocks of 3 MiB take 4 MiB each.
    ///
    /// ```
    /// let builder = cuguard::Pool::builder().share_tails(false);
    /// ```
    pub fn share_tails(mut self, share: bool) -> Self {
        self.config.settings.share_tails = share;
        self
    }

    /// Sets whether half-empty pages are merged when memory runs short, and by [`Pool::compact`](crate::Pool::compact). The
    /// default is `true`. Turn it off where work of other code uses memory of the pool, and cuguard does not know of it; see
    /// the [guide](crate::guide::pools).
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let pool = cuguard::Pool::builder().merge(false).build(&context)?;
    /// assert!(pool.compact().is_err());
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn merge(mut self, merge: bool) -> Self {
        self.config.settings.merge = merge;
        self
    }

    /// Names the pool in reports, and in the diagnosis of out-of-memory errors.
    ///
    /// ```
    /// let builder = cuguard::Pool::builder().with_label("activations");
    /// ```
    pub fn with_label(mut self, label: &str) -> Self {
        self.config.label = Some(label.to_owned());
        self
    }

    /// The pool's state.
    pub(super) fn create(self, state: &Arc<ContextState>) -> Arc<VirtualPool> {
        VirtualPool::new(state, self.config)
    }
}

/// Fails on a device without virtual memory management, or with pages of another size.
pub(super) fn check_device(operation: &'static str, state: &ContextState) -> Result<()> {
    let entered = state.enter(operation)?;
    let granularity = entered.check(virtual_memory::granularity(state.device as i32))?;
    if (2_usize << 20).is_multiple_of(granularity) {
        return Ok(());
    }
    Err(Error::Driver(DriverError {
        operation,
        function: "cuMemGetAllocationGranularity",
        code: CUresult::NOT_SUPPORTED,
        bytes: Some(granularity as u64),
        device: Some(state.device),
    }))
}
