//! Where buffers are allocated from, other than from the device itself: a pool and a stream.

use std::sync::Arc;

use crate::core::{DriverPoolState, StreamState, VirtualPool};
#[cfg(doc)]
use crate::error::Error;
#[cfg(doc)]
use crate::guards::DeviceBuffer;
use crate::guards::{MemoryPool, Stream};

/// Memory that buffers are allocated from: a [`Pool`](crate::Pool), or [`Pool::on`](crate::Pool::on) or [`MemoryPool::on`] a
/// stream.
///
/// See [`DeviceBuffer::zeroed_in`]. The trait is sealed.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, DeviceBuffer, MemoryPool, Result, Stream, memory::Source};
///
/// fn zeros(source: &impl Source) -> Result<DeviceBuffer<f32>> {
///     DeviceBuffer::zeroed_in(source, 1000)
/// }
///
/// let context = Context::new(0)?;
/// let (stream, pool) = (Stream::new(&context)?, MemoryPool::new(&context)?);
/// assert_eq!(zeros(&pool.on(&stream))?.len(), 1000);
/// # Ok::<(), cuguard::Error>(())
/// ```
pub trait Source: sealed::Sealed {
    /// The pool and the stream.
    #[doc(hidden)]
    fn parts(&self) -> SourceParts<'_>;
}

pub(super) mod sealed {
    pub trait Sealed {}

    impl Sealed for super::MemoryPoolStream<'_> {}
}

/// What a [`Source`] stands for.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct SourceParts<'a> {
    pub(super) pool: PoolRef<'a>,
    pub(super) stream: &'a Arc<StreamState>,
}

/// The pool of an allocation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PoolRef<'a> {
    /// The pool of the context; without one, the device's default memory pool.
    Default,
    /// A pool of the driver.
    Driver(&'a Arc<DriverPoolState>),
    /// A pool of cuguard.
    Virtual(&'a Arc<VirtualPool>),
}

/// A [`MemoryPool`] and a stream: memory is allocated from the pool and freed in the order of the stream; see
/// [`MemoryPool::on`].
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// # let context = cuguard::Context::new(0)?;
/// # let stream = cuguard::Stream::new(&context)?;
/// # let pool = cuguard::MemoryPool::new(&context)?;
/// let source: cuguard::memory::MemoryPoolStream<'_> = pool.on(&stream);
/// let buffer = cuguard::DeviceBuffer::from_slice_in(&source, &[1, 2])?;
/// assert_eq!(buffer.to_vec()?, [1, 2]);
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct MemoryPoolStream<'a> {
    pool: &'a MemoryPool,
    stream: &'a Stream,
}

impl MemoryPool {
    /// The pool, to allocate from in the order of `stream`: for [`DeviceBuffer::zeroed_in`] and the functions beside it.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let stream = cuguard::Stream::new(&context)?;
    /// let pool = cuguard::MemoryPool::new(&context)?;
    /// let buffer = cuguard::DeviceBuffer::<u8>::zeroed_in(&pool.on(&stream), 3)?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn on<'a>(&'a self, stream: &'a Stream) -> MemoryPoolStream<'a> {
        MemoryPoolStream { pool: self, stream }
    }
}

impl Source for MemoryPoolStream<'_> {
    fn parts(&self) -> SourceParts<'_> {
        SourceParts {
            pool: PoolRef::Driver(self.pool.pool_state()),
            stream: self.stream.stream_state(),
        }
    }
}
