//! The pool of cuguard.

use std::fmt;
use std::sync::Arc;

use cust_core::DeviceCopy;

use super::source::{Parts, PoolRef, Source, SourceParts, sealed};
use crate::core::pool_compaction::compact;
use crate::core::{ContextState, OwnedResource, Owner, VirtualPool, virtual_pool};
use crate::error::{Error, Result};
use crate::guards::pool_builder::check_device;
use crate::guards::{Context, DeviceBuffer, PoolBuilder, Stream};
use cuguard_registry::{Entry, Key, ResourceKind};

/// A pool of device memory against fragmentation: blocks are stitched out of pages of 2 MiB, and half-empty pages are merged
/// behind their addresses when memory runs short. (Blocks below 64 KiB that are left scattered
/// [keep pages](crate::guide::pools#what-small-blocks-keep).)
///
/// A block is allocated and freed in some tens of nanoseconds, without a driver call, where a block of its size was freed
/// before. A free never waits for the device. What is freed on a stream is reused on that stream at once, and on others
/// when the stream has done the work that it had by then. Idle memory is released to the device after a
/// [time](PoolBuilder::decay), and when memory runs short. See the [guide](crate::guide::pools) for what it costs, and for
/// what work the pool must know of.
///
/// The pool is a [`Source`] of buffers: `DeviceBuffer::zeroed(&pool.on(&stream), len)` allocates in the order of a stream,
/// with `&pool` in that of the default stream. [`ContextBuilder::pool`](crate::context::ContextBuilder::pool)
/// makes all buffers of a context come from one. Blocks are recorded as any other memory, as
/// [`ResourceKind::Pooled`](crate::ResourceKind::Pooled).
///
/// The memory is released when this guard and all buffers of the pool are dropped, and their streams have done the work
/// that they had by then. No drop waits for that.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, DeviceBuffer, Pool, Stream};
///
/// let context = Context::new(0)?;
/// let (pool, stream) = (Pool::new(&context)?, Stream::new(&context)?);
/// let first = DeviceBuffer::<f32>::zeroed(&pool.on(&stream), 1 << 20)?;
/// let address = first.as_view().as_device_ptr();
/// drop(first); // does not wait
/// let second = DeviceBuffer::<f32>::zeroed(&pool.on(&stream), 1 << 20)?;
/// assert_eq!(second.as_view().as_device_ptr(), address);
/// # Ok::<(), cuguard::Error>(())
/// ```
#[must_use = "dropped at once if unused"]
pub struct Pool {
    shared: Arc<VirtualPool>,
    /// The record of this guard.
    owned: OwnedResource,
    /// The home of buffers that are allocated without a stream. Keeps the context open, and is dropped after the pool.
    default: Stream,
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pool({:?} of {:?})", self.shared, self.state())
    }
}

/// A [`Pool`] and a stream: memory is allocated and freed in the order of the stream; see [`Pool::on`].
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// # let context = cuguard::Context::new(0)?;
/// # let stream = cuguard::Stream::new(&context)?;
/// # let pool = cuguard::Pool::new(&context)?;
/// let source: cuguard::memory::PoolStream<'_> = pool.on(&stream);
/// let buffer = cuguard::DeviceBuffer::from_slice(&source, &[1, 2])?;
/// assert_eq!(buffer.to_vec()?, [1, 2]);
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct PoolStream<'a> {
    pool: &'a Pool,
    stream: &'a Stream,
}

/// What a [`Pool`] holds, in bytes; see [`Pool::stats`].
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// # let context = cuguard::Context::new(0)?;
/// # let pool = cuguard::Pool::new(&context)?;
/// let buffer = cuguard::DeviceBuffer::<u8>::zeroed(&pool, 3 << 20)?;
/// let stats: cuguard::memory::PoolStats = pool.stats();
/// assert_eq!((stats.used, stats.held), (3 << 20, 4 << 20));
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolStats {
    /// Allocated blocks, rounded up.
    pub used: u64,
    /// Freed blocks that are mapped and free parts of pages, for allocations of the same size.
    pub cached: u64,
    /// Physical memory that is mapped nowhere.
    pub idle: u64,
    /// Physical memory, all of it.
    pub held: u64,
    /// Pages of 2 MiB that blocks share.
    pub pages: u64,
    /// Pages of 2 MiB that were merged into others since the pool was created: the sum of [`Compaction::merged`].
    pub merged: u64,
}

/// What [`Pool::compact`] did.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// # let context = cuguard::Context::new(0)?;
/// # let pool = cuguard::Pool::new(&context)?;
/// let compaction: cuguard::memory::Compaction = pool.compact()?;
/// assert_eq!(compaction.released, 0); // the pool is empty
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Compaction {
    /// Memory released to the device, in bytes.
    pub released: u64,
    /// Pages of 2 MiB that were merged into others.
    pub merged: u64,
    /// Bytes that were copied for it.
    pub copied: u64,
    /// Whether the driver refused a call, so that less was merged than can be. Every block has its bytes.
    pub refused: bool,
}

impl Pool {
    /// Creates a pool with the default settings. It holds no memory yet.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let pool = cuguard::Pool::new(&context)?;
    /// let buffer = cuguard::DeviceBuffer::from_slice(&pool, &[1, 2, 3])?;
    /// assert_eq!(buffer.to_vec()?, [1, 2, 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`PoolBuilder::build`].
    #[track_caller]
    pub fn new(context: &Context) -> Result<Self> {
        Self::create("Pool::new", context, PoolBuilder::default())
    }

    /// Configures a pool.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let pool = cuguard::Pool::builder().limit(1 << 30).build(&context)?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn builder() -> PoolBuilder {
        PoolBuilder::default()
    }

    #[track_caller]
    pub(super) fn create(
        operation: &'static str,
        context: &Context,
        builder: PoolBuilder,
    ) -> Result<Self> {
        check_device(operation, context.state())?;
        let default = Stream::default_stream(context)?;
        // Inside, so that it is in the snapshot of a teardown, or refused.
        let _entered = context.state().enter(operation)?;
        let shared = builder.create(context.state());
        let owner = Owner::Context(context.open().clone());
        let key = Key::new(ResourceKind::Pool, shared.number());
        let owned = OwnedResource::new(owner, key, Entry::of_handle(""));
        if let Some(label) = shared.label() {
            owned.name(label);
        }
        Ok(Self {
            shared,
            owned,
            default,
        })
    }

    fn state(&self) -> &Arc<ContextState> {
        self.owned.state()
    }

    /// The pool as a [`Source`], to allocate from in the order of `stream`.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let stream = cuguard::Stream::new(&context)?;
    /// let pool = cuguard::Pool::new(&context)?;
    /// let buffer = cuguard::DeviceBuffer::<u8>::zeroed(&pool.on(&stream), 3)?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn on<'a>(&'a self, stream: &'a Stream) -> PoolStream<'a> {
        PoolStream { pool: self, stream }
    }

    /// What the pool holds.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let pool = cuguard::Pool::new(&context)?;
    /// let buffer = cuguard::DeviceBuffer::<u8>::zeroed(&pool, 1 << 20)?;
    /// assert_eq!(pool.stats().held, 2 << 20); // one page, half of it free
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn stats(&self) -> PoolStats {
        let stats = self.shared.stats();
        PoolStats {
            used: stats.used,
            cached: stats.mapped_free(),
            idle: stats.idle,
            held: stats.held,
            pages: stats.frames as u64,
            merged: stats.merged_frames,
        }
    }

    /// Releases idle memory to the device: freed blocks whose streams have done the work that they had, and pages without
    /// blocks. Does not wait. Returns how many bytes were released.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let pool = cuguard::Pool::new(&context)?;
    /// drop(cuguard::DeviceBuffer::<u8>::zeroed(&pool, 4 << 20)?);
    /// context.synchronize()?;
    /// assert_eq!(pool.trim()?, 4 << 20);
    /// assert_eq!(pool.stats().held, 0);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`], or any other driver error. What was not released stays in the pool.
    pub fn trim(&self) -> Result<u64> {
        const OPERATION: &str = "Pool::trim";
        let _entered = self.state().enter(OPERATION)?;
        virtual_pool::check(self.state(), OPERATION, self.shared.trim(0))
    }

    /// Merges half-empty pages and releases the rest to the device: the live blocks of one page are copied to free parts of
    /// another, and the addresses of both are mapped onto that page. No address changes. It runs by itself when memory runs
    /// short.
    ///
    /// Waits for all work of the context, and stops operations of other threads in this context meanwhile: they wait. See the
    /// [guide](crate::guide::pools) for what work the pool must know of.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// use cuguard::{DeviceBuffer, Pool};
    ///
    /// let pool = Pool::new(&context)?;
    /// let mut blocks = Vec::new();
    /// for number in 0..64_u8 {
    ///     blocks.push(Some(DeviceBuffer::from_slice(&pool, &vec![number; 1 << 20])?));
    /// }
    /// blocks.iter_mut().step_by(2).for_each(|block| drop(block.take()));
    /// pool.compact()?;
    /// assert!(pool.stats().held < 64 << 20); // 32 MiB are in use
    /// assert_eq!(blocks[63].as_ref().unwrap().to_vec()?, vec![63; 1 << 20]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] if merging is [turned off](PoolBuilder::merge), if a stream of the context is captured, in a host function, or
    /// if the device does not become idle while operations are stopped, because a host function waits for one; [`Error::ContextClosed`],
    /// or any other driver error where nothing was released: see [`Compaction::refused`]. No block is lost or changed.
    pub fn compact(&self) -> Result<Compaction> {
        const OPERATION: &str = "Pool::compact";
        let state = self.state();
        let compacted = compact(state, &self.shared, u64::MAX, None);
        let compacted = compacted.map_err(|error| error.into_error(state, OPERATION))?;
        Ok(Compaction {
            released: compacted.released,
            merged: compacted.merged_frames as u64,
            copied: compacted.copied_bytes,
            refused: compacted.refused,
        })
    }

    /// Keeps the physical memory of a buffer where it is, through a compaction too: for memory that other code uses without
    /// the pool's knowledge, such as a library that works on a stream of its own, or a network card that is registered with
    /// the memory. Other buffers may share its page.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let pool = cuguard::Pool::new(&context)?;
    /// let buffer = cuguard::DeviceBuffer::<u8>::zeroed(&pool, 1 << 20)?;
    /// pool.pin(&buffer)?;
    /// pool.compact()?; // leaves the buffer alone
    /// pool.unpin(&buffer)?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Pool`] if the buffer is not from this pool; [`Error::ContextClosed`]. An empty buffer has no pages: nothing is
    /// pinned, and that is no error.
    pub fn pin<T: DeviceCopy>(&self, buffer: &DeviceBuffer<T>) -> Result<()> {
        self.set_pinned("Pool::pin", buffer, true)
    }

    /// Permits a compaction to move the memory of a buffer again; see [`pin`](Self::pin). Each pin needs one. A buffer that was
    /// dereferenced to a `DeviceSlice` of `cust` stays pinned until it is dropped.
    ///
    /// # Errors
    ///
    /// As [`pin`](Self::pin).
    pub fn unpin<T: DeviceCopy>(&self, buffer: &DeviceBuffer<T>) -> Result<()> {
        self.set_pinned("Pool::unpin", buffer, false)
    }

    fn set_pinned<T: DeviceCopy>(
        &self,
        operation: &'static str,
        buffer: &DeviceBuffer<T>,
        pinned: bool,
    ) -> Result<()> {
        let _entered = self.state().enter(operation)?;
        if buffer.is_empty() {
            // It has no pages, and names no pool.
            return Ok(());
        }
        match buffer.owned.owner() {
            Owner::Pooled(home) if Arc::ptr_eq(home.pool(), &self.shared) => {
                match pinned {
                    true => self.shared.set_pinned(buffer.address(), true),
                    false => buffer.owned.unpin(home),
                }
                Ok(())
            }
            _ => Err(Error::Pool {
                operation,
                reason: "the buffer is not from this pool".to_owned(),
            }),
        }
    }
}

impl PoolBuilder {
    /// Creates the pool. It holds no memory yet.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let pool = cuguard::Pool::builder().build(&context)?;
    /// assert_eq!(pool.stats().held, 0);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`], or any other driver error: `CUDA_ERROR_NOT_SUPPORTED` on a device without virtual memory
    /// management.
    #[track_caller]
    pub fn build(self, context: &Context) -> Result<Pool> {
        Pool::create("PoolBuilder::build", context, self)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Blocks keep the pool, and not what is kept for the next block.
        self.shared.end_homes();
    }
}

impl sealed::Sealed for Pool {}
impl sealed::Sealed for PoolStream<'_> {}

impl Source for Pool {
    #[inline]
    fn parts(&self) -> SourceParts<'_> {
        let pool = PoolRef::Virtual(&self.shared);
        SourceParts(Parts::Ordered(pool, self.default.stream_state()))
    }
}

impl Source for PoolStream<'_> {
    #[inline]
    fn parts(&self) -> SourceParts<'_> {
        let pool = PoolRef::Virtual(&self.pool.shared);
        SourceParts(Parts::Ordered(pool, self.stream.stream_state()))
    }
}
