//! Memory pools of the driver, for stream-ordered memory.

use std::fmt;
use std::sync::Arc;

use cuguard_driver::result::pool;
use cuguard_driver::sys::CUmemoryPool;

use crate::core::{self, ContextState, DriverPoolState, ListedHandle, OpenContext, Owner, Request};
use crate::error::Result;
use crate::guards::Context;
use crate::guards::keep::drop_guard;
use crate::recovery;
use cuguard_registry::ResourceKind;

/// A memory pool of the driver (`CUmemoryPool`). [`on`](Self::on) a stream, it is a [`Source`](crate::memory::Source) of
/// stream-ordered buffers. cuguard's own pool is [`Pool`](crate::Pool).
///
/// The pool is destroyed when this guard and all its buffers are dropped. (Drivers can crash if a pool is destroyed
/// before its memory is freed.)
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, DeviceBuffer, DriverPool, Stream};
///
/// let context = Context::new(0)?;
/// let stream = Stream::new(&context)?;
/// let pool = DriverPool::new(&context)?;
/// pool.set_release_threshold(1 << 30)?; // cache up to 1 GiB
/// let buffer = DeviceBuffer::<u8>::zeroed(&pool.on(&stream), 1000)?;
/// assert_eq!(pool.used_bytes()?, 1000);
/// # Ok::<(), cuguard::Error>(())
/// ```
#[must_use = "dropped at once if unused"]
#[doc(alias("CUmemoryPool", "cuMemPoolCreate"))]
pub struct DriverPool {
    shared: Arc<DriverPoolState>,
    /// Keeps the context open. Dropped after the pool.
    open: Arc<OpenContext>,
}

impl fmt::Debug for DriverPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.owned.fmt_guard("DriverPool", f)
    }
}

impl DriverPool {
    /// Creates an empty pool on the context's device.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let pool = cuguard::DriverPool::new(&context)?;
    /// assert_eq!(pool.reserved_bytes()?, 0);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ContextClosed`](crate::Error::ContextClosed), [`OutOfMemory`](crate::Error::OutOfMemory), or any other driver error.
    #[track_caller]
    pub fn new(context: &Context) -> Result<Self> {
        let state = context.state();
        let request = Request::of_unknown_size("DriverPool::new", Some(ResourceKind::MemoryPool));
        let shared = recovery::with_recovery(state, &request, || {
            let _entered = state.enter(request.operation)?;
            let owner = Owner::State(state.clone());
            let owned = core::allocate(
                state,
                &request,
                ResourceKind::MemoryPool,
                "",
                || owner,
                || pool::create(state.device as i32).map(|pool| pool.0 as u64),
            )?;
            let listed = ListedHandle::new(state, |state| &state.pools, owned.key());
            Ok(Arc::new(DriverPoolState::new(listed, owned)))
        })?;
        Ok(Self {
            shared,
            open: context.open().clone(),
        })
    }

    /// The driver's pool, which the guard and its buffers share.
    pub(crate) fn pool_state(&self) -> &Arc<DriverPoolState> {
        &self.shared
    }

    pub(crate) fn state(&self) -> &Arc<ContextState> {
        self.shared.state()
    }

    /// The driver's handle, for code that calls the driver directly. Valid until the pool is destroyed.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let pool = cuguard::DriverPool::new(&context)?;
    /// assert_ne!(pool.as_raw(), cuguard::driver::sys::CUmemoryPool::NULL);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn as_raw(&self) -> CUmemoryPool {
        self.shared.handle()
    }

    fn get(&self, operation: &'static str, attribute: pool::Attribute) -> Result<u64> {
        let entered = self.state().enter(operation)?;
        // SAFETY: the pool is alive.
        entered.check(unsafe { pool::attribute(self.as_raw(), attribute) })
    }

    /// The device memory that the pool has reserved, in bytes.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// # let pool = cuguard::DriverPool::new(&context)?;
    /// let buffer = cuguard::DeviceBuffer::<u8>::zeroed(&pool.on(&stream), 1000)?;
    /// assert!(pool.reserved_bytes()? > 1000); // pools reserve large blocks
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any driver error.
    pub fn reserved_bytes(&self) -> Result<u64> {
        self.get("DriverPool::reserved_bytes", pool::Attribute::Reserved)
    }

    /// The bytes that are allocated from the pool.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// # let pool = cuguard::DriverPool::new(&context)?;
    /// let buffer = cuguard::DeviceBuffer::<u8>::zeroed(&pool.on(&stream), 1000)?;
    /// assert_eq!(pool.used_bytes()?, 1000);
    /// drop(buffer);
    /// stream.synchronize()?;
    /// assert_eq!(pool.used_bytes()?, 0);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any driver error.
    pub fn used_bytes(&self) -> Result<u64> {
        self.get("DriverPool::used_bytes", pool::Attribute::Used)
    }

    /// Sets how many bytes the pool may keep when the host synchronizes a stream or the context. The default is 0: all
    /// unused memory is then released to the device.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// # let pool = cuguard::DriverPool::new(&context)?;
    /// pool.set_release_threshold(u64::MAX)?; // keep all
    /// drop(cuguard::DeviceBuffer::<u8>::zeroed(&pool.on(&stream), 1000)?);
    /// stream.synchronize()?;
    /// assert!(pool.reserved_bytes()? > 0);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any driver error.
    pub fn set_release_threshold(&self, bytes: u64) -> Result<()> {
        let entered = self.state().enter("DriverPool::set_release_threshold")?;
        let attribute = pool::Attribute::ReleaseThreshold;
        // SAFETY: the pool is alive.
        entered.check(unsafe { pool::set_attribute(self.as_raw(), attribute, bytes) })
    }

    /// Releases unused memory to the device until at most `keep` bytes are reserved.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// # let pool = cuguard::DriverPool::new(&context)?;
    /// pool.set_release_threshold(u64::MAX)?;
    /// drop(cuguard::DeviceBuffer::<u8>::zeroed(&pool.on(&stream), 1000)?);
    /// stream.synchronize()?;
    /// pool.trim_to(0)?;
    /// assert_eq!(pool.reserved_bytes()?, 0);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Any driver error.
    pub fn trim_to(&self, keep: usize) -> Result<()> {
        let entered = self.state().enter("DriverPool::trim_to")?;
        // SAFETY: the pool is alive.
        entered.check(unsafe { pool::trim_to(self.as_raw(), keep) })
    }

    /// Names the pool in reports.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let pool = cuguard::DriverPool::new(&context)?.with_label("scratch");
    /// assert_eq!(context.snapshot().live[0].label.as_deref(), Some("scratch"));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use = "returns the guard"]
    pub fn with_label(self, label: &str) -> Self {
        self.shared.owned.name(label);
        self
    }

    /// Destroys the pool and returns the driver's error, if any. A failed free is in the report, by `close` or by drop. A
    /// pool with live buffers is destroyed with the last of them: this returns `Ok`, and until then the pool stays in the
    /// registry.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// # let pool = cuguard::DriverPool::new(&context)?;
    /// let buffer = cuguard::DeviceBuffer::<u8>::zeroed(&pool.on(&stream), 1000)?;
    /// pool.close()?;
    /// assert_eq!(context.totals(cuguard::ResourceKind::MemoryPool).count, 1);
    /// drop(buffer);
    /// assert_eq!(context.totals(cuguard::ResourceKind::MemoryPool).count, 0);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ContextClosed`](crate::Error::ContextClosed), or any other driver error.
    pub fn close(self) -> Result<()> {
        // The pool must be closed before its context, which this guard may be the last to keep open.
        let _open = self.open.clone();
        let unshared = drop_guard(self.shared.clone(), self);
        unshared.map_or(Ok(()), |pool| pool.close("DriverPool::close"))
    }
}

impl Drop for DriverPool {
    fn drop(&mut self) {
        // See `keep.rs`.
        if Arc::strong_count(&self.shared) > 1 {
            self.shared.owned.keep();
        }
    }
}
