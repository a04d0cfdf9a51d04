//! Where buffers are allocated from: a context, a stream or a pool.

use std::cell::{LazyCell, Ref, RefMut};
use std::rc::Rc;
use std::sync::{Arc, LazyLock, MutexGuard, RwLockReadGuard, RwLockWriteGuard};

use crate::core::{DriverPoolState, StreamState, VirtualPool};
#[cfg(doc)]
use crate::error::Error;
#[cfg(doc)]
use crate::guards::DeviceBuffer;
use crate::guards::{Context, DriverPool, Stream};

/// What a [`DeviceBuffer`] is allocated from: a context, a stream or a pool.
///
/// | source | memory | freed |
/// |---|---|---|
/// | [`&context`](Context) | synchronous (`cuMemAlloc`); from the context's pool, [if it has one](crate::context::ContextBuilder::pool) | when the device is done with it; a block of the pool in the order of the default stream, without waiting |
/// | [`&stream`](Stream) | stream-ordered: from the context's pool, without one from the device's default memory pool (`cuMemAllocAsync`) | in the order of the stream, without blocking |
/// | [`&pool`](crate::Pool), [`&pool.on(&stream)`](crate::Pool::on) | of that pool; without a stream, in the order of the default stream | as above |
/// | [`&driver_pool.on(&stream)`](DriverPool::on) | of that pool of the driver (`cuMemAllocFromPoolAsync`) | as above |
///
/// A reference to a source, and a smart pointer or lock guard of the standard library, is a source too. The trait is sealed.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, DeviceBuffer, DriverPool, Pool, Result, Stream, memory::Source};
///
/// fn zeros(source: &impl Source) -> Result<DeviceBuffer<f32>> {
///     DeviceBuffer::zeroed(source, 1000)
/// }
///
/// let context = Context::new(0)?;
/// let stream = Stream::new(&context)?;
/// let (pool, driver_pool) = (Pool::new(&context)?, DriverPool::new(&context)?);
/// let buffers = [
///     zeros(&context)?,
///     zeros(&stream)?,
///     zeros(&pool)?,
///     zeros(&pool.on(&stream))?,
///     zeros(&driver_pool.on(&stream))?,
/// ];
/// assert!(buffers.iter().all(|buffer| buffer.len() == 1000));
///
/// let shared = std::sync::Arc::new(std::sync::Mutex::new(context));
/// assert_eq!(zeros(&shared.lock().unwrap())?.len(), 1000);
/// # Ok::<(), cuguard::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "buffers cannot be allocated from `{Self}`",
    label = "not a context, a stream or a pool",
    note = "a `DriverPool` allocates in the order of a stream: `&pool.on(&stream)`",
    note = "behind a pointer of another crate: `&*pointer`"
)]
pub trait Source: sealed::Sealed {
    /// Which of them it is.
    #[doc(hidden)]
    fn parts(&self) -> SourceParts<'_>;
}

pub(super) mod sealed {
    use super::{Context, DriverPoolStream, Stream};

    pub trait Sealed {}

    impl Sealed for Context {}
    impl Sealed for Stream {}
    impl Sealed for DriverPoolStream<'_> {}
}

/// What a [`Source`] stands for.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct SourceParts<'a>(pub(super) Parts<'a>);

/// A context, or a pool and a stream.
#[derive(Clone, Copy, Debug)]
pub(super) enum Parts<'a> {
    Context(&'a Context),
    Ordered(PoolRef<'a>, &'a Arc<StreamState>),
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

/// A [`DriverPool`] and a stream: memory is allocated from the pool and freed in the order of the stream; see
/// [`DriverPool::on`].
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// # let context = cuguard::Context::new(0)?;
/// # let stream = cuguard::Stream::new(&context)?;
/// # let pool = cuguard::DriverPool::new(&context)?;
/// let source: cuguard::memory::DriverPoolStream<'_> = pool.on(&stream);
/// let buffer = cuguard::DeviceBuffer::from_slice(&source, &[1, 2])?;
/// assert_eq!(buffer.to_vec()?, [1, 2]);
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct DriverPoolStream<'a> {
    pool: &'a DriverPool,
    stream: &'a Stream,
}

impl DriverPool {
    /// The pool as a [`Source`], to allocate from in the order of `stream`.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let stream = cuguard::Stream::new(&context)?;
    /// let pool = cuguard::DriverPool::new(&context)?;
    /// let buffer = cuguard::DeviceBuffer::<u8>::zeroed(&pool.on(&stream), 3)?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn on<'a>(&'a self, stream: &'a Stream) -> DriverPoolStream<'a> {
        DriverPoolStream { pool: self, stream }
    }
}

impl Source for DriverPoolStream<'_> {
    fn parts(&self) -> SourceParts<'_> {
        let pool = PoolRef::Driver(self.pool.pool_state());
        SourceParts(Parts::Ordered(pool, self.stream.stream_state()))
    }
}

impl Source for Context {
    #[inline]
    fn parts(&self) -> SourceParts<'_> {
        SourceParts(Parts::Context(self))
    }
}

impl Source for Stream {
    #[inline]
    fn parts(&self) -> SourceParts<'_> {
        SourceParts(Parts::Ordered(PoolRef::Default, self.stream_state()))
    }
}

/// Guards behind pointers are sources too. Not all that dereferences to one: a [`Stream`] does so to `cust`'s.
macro_rules! behind {
    ($([$($parameters:tt)*] $pointer:ty)*) => {$(
        impl<$($parameters)*> sealed::Sealed for $pointer {}

        impl<$($parameters)*> Source for $pointer {
            #[inline]
            fn parts(&self) -> SourceParts<'_> {
                (**self).parts()
            }
        }
    )*};
}
behind! {
    [S: Source + ?Sized] &S
    [S: Source + ?Sized] &mut S
    [S: Source + ?Sized] Box<S>
    [S: Source + ?Sized] Rc<S>
    [S: Source + ?Sized] Arc<S>
    [S: Source + ?Sized] MutexGuard<'_, S>
    [S: Source + ?Sized] RwLockReadGuard<'_, S>
    [S: Source + ?Sized] RwLockWriteGuard<'_, S>
    [S: Source + ?Sized] Ref<'_, S>
    [S: Source + ?Sized] RefMut<'_, S>
    [S: Source, F: FnOnce() -> S] LazyCell<S, F>
    [S: Source, F: FnOnce() -> S] LazyLock<S, F>
}
