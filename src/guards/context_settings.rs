//! Settings of a context: limits, and how threads wait for the device.

use cuguard_driver::result::context;
use cuguard_driver::sys::{ctx_flags, limit};

#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::guards::Context;
#[cfg(doc)]
use crate::guards::{ContextBuilder, DeviceHeap};

/// A limit of a context; see [`Context::limit`].
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::context::ContextLimit;
/// use cuguard::Context;
///
/// let context = Context::new(0)?;
/// context.set_limit(ContextLimit::StackSize, 4096)?;
/// assert_eq!(context.limit(ContextLimit::StackSize)?, 4096);
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u32)]
#[doc(alias = "ResourceLimit")]
pub enum ContextLimit {
    /// The stack of each thread of a kernel, in bytes.
    StackSize = limit::STACK_SIZE,
    /// The buffer of `printf` in kernels, in bytes.
    PrintfFifoSize = limit::PRINTF_FIFO_SIZE,
    /// The heap of `malloc` in kernels, in bytes. [`DeviceHeap`] sets it and restores it.
    MallocHeapSize = limit::MALLOC_HEAP_SIZE,
    /// How deep kernels that launch kernels may wait for them.
    DevRuntimeSyncDepth = limit::DEV_RUNTIME_SYNC_DEPTH,
    /// How many launches by kernels may be pending.
    DevRuntimePendingLaunchCount = limit::DEV_RUNTIME_PENDING_LAUNCH_COUNT,
    /// The granularity of fetches to the L2 cache, in bytes: a hint.
    MaxL2FetchGranularity = limit::MAX_L2_FETCH_GRANULARITY,
    /// The part of the L2 cache for persisting accesses, in bytes.
    PersistingL2CacheSize = limit::PERSISTING_L2_CACHE_SIZE,
}

impl Context {
    /// A limit of the driver's context.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let bytes = context.limit(cuguard::context::ContextLimit::PrintfFifoSize)?;
    /// println!("kernels print at most {bytes} bytes between two synchronizations");
    /// # assert!(bytes > 0);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_UNSUPPORTED_LIMIT` if the device does not have it, or any other driver error.
    #[doc(alias = "cuCtxGetLimit")]
    pub fn limit(&self, limit: ContextLimit) -> Result<u64> {
        let entered = self.state().enter("Context::limit")?;
        let value = entered.check(context::limit(limit as u32))?;
        Ok(value as u64)
    }

    /// Sets a limit. The driver may choose another value near it. A primary context may be in use by other code, which it
    /// applies to as well.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::context::ContextLimit;
    /// use cuguard::Context;
    ///
    /// // Kernels that recurse need more stack. A dedicated context is not shared.
    /// let context = Context::builder().dedicated().build()?;
    /// context.set_limit(ContextLimit::StackSize, 16 << 10)?;
    /// assert_eq!(context.limit(ContextLimit::StackSize)?, 16 << 10);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `CUDA_ERROR_UNSUPPORTED_LIMIT` if the device does not have it, `CUDA_ERROR_INVALID_VALUE` for a value that it does
    /// not accept, or any other driver error. The limit is unchanged then.
    #[doc(alias = "cuCtxSetLimit")]
    pub fn set_limit(&self, limit: ContextLimit, value: u64) -> Result<()> {
        let value = usize::try_from(value).unwrap_or(usize::MAX);
        let entered = self.state().enter("Context::set_limit")?;
        entered.check(context::set_limit(limit as u32, value))
    }
}

/// How a thread waits for the device; see [`ContextBuilder::schedule`].
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::context::Schedule;
/// use cuguard::Context;
///
/// let context = Context::builder().dedicated().schedule(Schedule::BlockingSync).build()?;
/// context.synchronize()?; // sleeps meanwhile
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u32)]
pub enum Schedule {
    /// The driver chooses: spinning, or yielding where there are more contexts than processors.
    #[default]
    Auto = ctx_flags::SCHED_AUTO,
    /// The thread spins: the shortest latency.
    Spin = ctx_flags::SCHED_SPIN,
    /// The thread yields to others while it spins.
    Yield = ctx_flags::SCHED_YIELD,
    /// The thread sleeps until the device wakes it: no processor time.
    BlockingSync = ctx_flags::SCHED_BLOCKING_SYNC,
}
