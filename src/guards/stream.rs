//! Streams.
//!
//! The `Stream` guard shares a [`StreamState`] with stream-ordered buffers: a buffer is freed on its stream, so the
//! stream is destroyed after the last of them.

use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use cuguard_driver::result::stream;
use cuguard_driver::sys::CUstream;

use crate::core::{ContextState, StreamState, same_context};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::guards::keep::drop_guard;
#[cfg(doc)]
use crate::guards::{Context, Event, StreamBuilder};

/// A CUDA stream: work on one stream runs in order, streams run concurrently. Enqueue work in a [`scope`](Self::scope).
///
/// A stream is *non-blocking* by default: it does not synchronize with the default stream. (`cust` has a flag for this
/// and ignores it.) [`StreamBuilder::blocking`] changes that. Synchronous operations of this crate, such as
/// [`DeviceBuffer::copy_from_slice`](crate::DeviceBuffer::copy_from_slice), are visible to every stream when they
/// return. Work that other code enqueues on the default stream is not: order it by an [`Event`], or use a blocking
/// stream.
///
/// A stream can be used and dropped on any thread. It is destroyed when this guard and all buffers that were allocated
/// on it are dropped; pending work still completes.
///
/// With the feature `cust`, dereferences to [`cust`'s `Stream`][cust], so `cust`'s launch macro accepts it. `cust` needs a current context
/// ([`Context::make_current`]), and a reference to `cust`'s stream must not be used after the context is closed.
/// Dereferencing after that panics.
///
/// [cust]: https://docs.rs/cust/0.3/cust/stream/struct.Stream.html
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, DeviceBuffer, Stream};
///
/// let context = Context::new(0)?;
/// let stream = Stream::new(&context)?.with_label("copies");
/// let buffer = DeviceBuffer::<f32>::zeroed(&stream, 1000)?;
/// drop(buffer); // freed in stream order
/// stream.synchronize()?;
/// assert!(stream.is_idle()?);
/// # Ok::<(), cuguard::Error>(())
/// ```
#[must_use = "dropped at once if unused"]
#[doc(alias("CudaStream", "cuStreamCreate"))]
pub struct Stream {
    shared: Arc<StreamState>,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.owned.fmt_guard("Stream", f)
    }
}

impl Stream {
    /// The guard of a driver's stream.
    pub(super) fn from_state(shared: Arc<StreamState>) -> Self {
        Self { shared }
    }

    /// The driver's stream, without the guard; the guard, if buffers still share the stream.
    pub(super) fn into_state(self) -> std::result::Result<StreamState, Self> {
        let guard = ManuallyDrop::new(self);
        // SAFETY: moved out of the guard, which is never used again and has no other field.
        let shared = unsafe { std::ptr::read(&guard.shared) };
        shared.homes().end();
        Arc::try_unwrap(shared).map_err(|shared| {
            shared.homes().begin();
            Self::from_state(shared)
        })
    }

    /// The driver's stream, which the guard and its buffers share.
    #[inline]
    pub(crate) fn stream_state(&self) -> &Arc<StreamState> {
        &self.shared
    }

    pub(crate) fn state(&self) -> &Arc<ContextState> {
        self.shared.state()
    }

    /// Names the stream in reports.
    #[must_use = "returns the guard"]
    pub fn with_label(self, label: &str) -> Self {
        self.shared.owned.name(label);
        self
    }

    /// The driver's handle, for code that calls the driver directly. Valid until this guard is dropped or its
    /// context is closed.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// assert_ne!(stream.as_raw(), cuguard::driver::sys::CUstream::NULL);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn as_raw(&self) -> CUstream {
        self.shared.handle()
    }

    /// The priority of the stream, clamped to the supported range.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// assert_eq!(cuguard::Stream::new(&context)?.priority()?, 0);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`], or any other driver error.
    pub fn priority(&self) -> Result<i32> {
        let entered = self.state().enter("Stream::priority")?;
        // SAFETY: the stream is alive.
        entered.check(unsafe { stream::priority(self.as_raw()) })
    }

    /// Waits until all work on the stream is complete.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let stream = cuguard::Stream::new(&context)?;
    /// stream.synchronize()?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`], or any other driver error, including that of earlier asynchronous work.
    #[doc(alias = "cuStreamSynchronize")]
    pub fn synchronize(&self) -> Result<()> {
        let entered = self.state().enter_to_wait("Stream::synchronize")?;
        self.shared.progress().track_wait(|| {
            // SAFETY: the stream is alive.
            entered.check(unsafe { stream::synchronize(self.as_raw()) })
        })
    }

    /// Whether all work on the stream is complete. Does not block.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let stream = cuguard::Stream::new(&context)?;
    /// while !stream.is_idle()? {
    ///     std::thread::yield_now(); // or other work
    /// }
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`], or any other driver error, including that of earlier asynchronous work.
    #[doc(alias = "cuStreamQuery")]
    pub fn is_idle(&self) -> Result<bool> {
        let entered = self.state().enter("Stream::is_idle")?;
        // SAFETY: the stream is alive.
        entered.check(unsafe { stream::query(self.as_raw()) })
    }

    /// Work enqueued on this stream from now on waits for all work that is enqueued on `other` so far. Does not block the
    /// calling thread.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// use cuguard::Stream;
    ///
    /// let (first, second) = (Stream::new(&context)?, Stream::new(&context)?);
    /// second.order_after(&first)?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::WrongContext`], [`Error::ContextClosed`], or any other driver error.
    #[doc(alias = "join")]
    pub fn order_after(&self, other: &Stream) -> Result<()> {
        const OPERATION: &str = "Stream::order_after";
        let this = ("the stream that waits", self.state());
        let that = ("the stream that it waits for", other.state());
        same_context::check(OPERATION, this, that)?;
        self.shared.order_after(OPERATION, &other.shared)
    }

    /// Destroys the stream and returns the error. Does not block; pending work still completes. Drop does the same and
    /// records the error for the report.
    ///
    /// A stream with live buffers is destroyed with the last of them: this returns `Ok`, and until then the stream stays
    /// in the registry.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// cuguard::Stream::new(&context)?.close()?;
    /// assert_eq!(context.live_count(), 0);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`] if the context was closed first, or any other driver error.
    pub fn close(self) -> Result<()> {
        let unshared = drop_guard(self.shared.clone(), self);
        unshared.map_or(Ok(()), |stream| stream.close("Stream::close"))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // Blocks of pools keep the stream, and not what is kept for the next block.
        self.shared.homes().end();
        // See `keep.rs`.
        if Arc::strong_count(&self.shared) > 1 {
            self.shared.owned.keep();
        }
    }
}
