//! A memory pool of the driver's, for stream-ordered memory.

use std::sync::Arc;

use cuguard_driver::result::pool;
use cuguard_driver::sys::CUmemoryPool;

use crate::core::{
    self, ContextState, ListedHandle, OpenContext, OwnedResource, Owner, PoolState, Request,
};
use crate::error::Result;
use crate::guards::Context;
use crate::recovery;
use cuguard_registry::Kind;

/// A memory pool of the driver's, from which stream-ordered buffers can be taken; see
/// [`DeviceBuffer::zeroed_in`](crate::DeviceBuffer::zeroed_in).
///
/// The driver's pool is destroyed when this guard and all buffers that were taken from it are gone.
/// (A driver was seen to crash later where a pool was destroyed before its memory was freed.)
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, DeviceBuffer, MemoryPool, Stream};
///
/// let context = Context::new(0)?;
/// let stream = Stream::new(&context)?;
/// let pool = MemoryPool::new(&context)?;
/// pool.set_release_threshold(1 << 30)?; // keep up to 1 GiB for later
/// let buffer = DeviceBuffer::<u8>::zeroed_in(&pool, &stream, 1000)?;
/// assert_eq!(pool.used_bytes()?, 1000);
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "what is not kept is freed at once"]
pub struct MemoryPool {
    /// Dropped before what keeps the context open.
    core: Arc<PoolState>,
    open: Arc<OpenContext>,
}

impl MemoryPool {
    /// An empty pool on the context's device.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let pool = cuguard::MemoryPool::new(&context)?;
    /// assert_eq!(pool.reserved_bytes()?, 0);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ContextClosed`](crate::Error::ContextClosed), [`OutOfMemory`](crate::Error::OutOfMemory), or
    /// what the driver says.
    #[track_caller]
    pub fn new(context: &Context) -> Result<Self> {
        let state = context.state();
        let request = Request::of_unknown_size("MemoryPool::new", Some(Kind::MemoryPool));
        let core = recovery::satisfy(state, &request, || {
            let _entered = state.enter(request.operation)?;
            let owner = Owner::State(state.clone());
            let owned = core::allocate(owner, &request, Kind::MemoryPool, "", || {
                pool::create(state.device as i32).map(|pool| pool.0 as u64)
            })?;
            let listed = ListedHandle::new(state, |state| &state.pools, owned.key());
            Ok(PoolState::new(listed, owned))
        })?;
        Ok(Self {
            core: Arc::new(core),
            open: context.open().clone(),
        })
    }

    pub(crate) fn owned(&self) -> &OwnedResource {
        &self.core.owned
    }

    pub(crate) fn core(&self) -> &Arc<PoolState> {
        &self.core
    }

    pub(crate) fn state(&self) -> &Arc<ContextState> {
        self.owned().state()
    }

    /// The driver's handle.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let pool = cuguard::MemoryPool::new(&context)?;
    /// assert_ne!(pool.as_raw(), cuguard::driver::sys::CUmemoryPool::NULL);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn as_raw(&self) -> CUmemoryPool {
        CUmemoryPool(self.owned().address() as usize)
    }

    fn get(&self, operation: &'static str, attribute: pool::Attribute) -> Result<u64> {
        let entered = self.state().enter(operation)?;
        // SAFETY: the pool is alive.
        entered.check(unsafe { pool::attribute(self.as_raw(), attribute) })
    }

    /// The bytes that the pool has taken from the device.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// # let pool = cuguard::MemoryPool::new(&context)?;
    /// let buffer = cuguard::DeviceBuffer::<u8>::zeroed_in(&pool, &stream, 1000)?;
    /// assert!(pool.reserved_bytes()? > 1000); // pools take large pieces
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// What the driver says.
    pub fn reserved_bytes(&self) -> Result<u64> {
        self.get("MemoryPool::reserved_bytes", pool::Attribute::Reserved)
    }

    /// The bytes that are in use.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// # let pool = cuguard::MemoryPool::new(&context)?;
    /// let buffer = cuguard::DeviceBuffer::<u8>::zeroed_in(&pool, &stream, 1000)?;
    /// assert_eq!(pool.used_bytes()?, 1000);
    /// drop(buffer);
    /// stream.synchronize()?;
    /// assert_eq!(pool.used_bytes()?, 0);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// What the driver says.
    pub fn used_bytes(&self) -> Result<u64> {
        self.get("MemoryPool::used_bytes", pool::Attribute::Used)
    }

    /// How many bytes the pool may keep when the host waits for a stream. By default 0: all that
    /// is not in use goes back to the device then.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// # let pool = cuguard::MemoryPool::new(&context)?;
    /// pool.set_release_threshold(u64::MAX)?; // keep all
    /// drop(cuguard::DeviceBuffer::<u8>::zeroed_in(&pool, &stream, 1000)?);
    /// stream.synchronize()?;
    /// assert!(pool.reserved_bytes()? > 0);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// What the driver says.
    pub fn set_release_threshold(&self, bytes: u64) -> Result<()> {
        let entered = self.state().enter("MemoryPool::set_release_threshold")?;
        let attribute = pool::Attribute::ReleaseThreshold;
        // SAFETY: the pool is alive.
        entered.check(unsafe { pool::set_attribute(self.as_raw(), attribute, bytes) })
    }

    /// Gives memory that is not in use back to the device, down to `keep` bytes.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// # let pool = cuguard::MemoryPool::new(&context)?;
    /// pool.set_release_threshold(u64::MAX)?;
    /// drop(cuguard::DeviceBuffer::<u8>::zeroed_in(&pool, &stream, 1000)?);
    /// stream.synchronize()?;
    /// pool.trim_to(0)?;
    /// assert_eq!(pool.reserved_bytes()?, 0);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// What the driver says.
    pub fn trim_to(&self, keep: usize) -> Result<()> {
        let entered = self.state().enter("MemoryPool::trim_to")?;
        // SAFETY: the pool is alive.
        entered.check(unsafe { pool::trim_to(self.as_raw(), keep) })
    }

    /// Gives the pool a name that reports show.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let pool = cuguard::MemoryPool::new(&context)?.named("scratch");
    /// assert_eq!(context.snapshot().live[0].label.as_deref(), Some("scratch"));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use = "the pool is handed back"]
    pub fn named(self, label: &str) -> Self {
        self.owned().name(label);
        self
    }

    /// Ends the pool and tells whether the driver took it. A pool from which buffers are still in use
    /// goes with the last of them; until then it stays in the registry, and this answers `Ok`.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// # let pool = cuguard::MemoryPool::new(&context)?;
    /// let buffer = cuguard::DeviceBuffer::<u8>::zeroed_in(&pool, &stream, 1000)?;
    /// pool.close()?;
    /// assert_eq!(context.totals(cuguard::Kind::MemoryPool).count, 1);
    /// drop(buffer);
    /// assert_eq!(context.totals(cuguard::Kind::MemoryPool).count, 0);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ContextClosed`](crate::Error::ContextClosed), or what the driver says.
    pub fn close(self) -> Result<()> {
        // The pool is closed before its context, should this be what keeps that open.
        let _open = self.open.clone();
        let last = self.into_last();
        last.map_or(Ok(()), |pool| pool.close("MemoryPool::close"))
    }
}
