//! Streams: queues of work that the device does in order.
//!
//! The `Stream` guard is a handle to a [`StreamState`], which stream-ordered buffers share: a
//! buffer is freed on its stream, so the stream lives as long as the last of them.

use std::ffi::c_void;
use std::mem::{self, ManuallyDrop};
use std::ops::{Deref, RangeInclusive};
use std::sync::Arc;

use cuguard_driver::result::{context, stream};
use cuguard_driver::sys::{CUstream, flags};

use crate::core::{self, ListedHandle, Request, StreamState, same_context};
use crate::error::{Error, Result};
use crate::guards::{Context, Event};
use crate::recovery;
use cuguard_registry::Kind;

/// A queue of work that the device does in order. Streams run beside each other.
///
/// A stream is *non-blocking* unless it is [asked](Self::builder) to block: it does not wait for
/// the default stream, nor the default stream for it. (`cust` has a flag for this and ignores it.)
/// What this crate does synchronously, such as
/// [`DeviceBuffer::copy_from_slice`](crate::DeviceBuffer::copy_from_slice), has happened for every
/// stream when it returns. Work that other code puts on the default stream has not: order it by an
/// [`Event`], or use a blocking stream.
///
/// Work is given to a stream in a [`scope`](Self::scope).
///
/// A stream can be used and dropped on any thread. It is destroyed when this guard and all buffers
/// that were allocated on it are gone; what it still has to do is done all the same.
///
/// It derefs to [`cust`'s `Stream`][cust], so that `cust`'s launch macro goes on
/// working. `cust` knows nothing of contexts: one must be current, for instance by
/// [`Context::make_current`], and a reference to `cust`'s stream must not be used once the context is
/// closed. To deref only then panics.
///
/// [cust]: https://docs.rs/cust/0.3/cust/stream/struct.Stream.html
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, DeviceBuffer, Stream};
///
/// let context = Context::new(0)?;
/// let stream = Stream::new(&context)?.named("copies");
/// let buffer = DeviceBuffer::<f32>::zeroed_on(&stream, 1000)?;
/// drop(buffer); // freed in the order of the stream
/// stream.synchronize()?;
/// assert!(stream.is_idle()?);
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "what is not kept is freed at once"]
pub struct Stream {
    core: Arc<StreamState>,
    /// The same handle as `cust` has it. Its `Drop`, which would destroy the stream a second time,
    /// must never run.
    cust: ManuallyDrop<cust::stream::Stream>,
}

// What `as_cust` relies on.
const _: () = assert!(
    mem::size_of::<cust::stream::Stream>() == mem::size_of::<*mut c_void>()
        && mem::align_of::<cust::stream::Stream>() == mem::align_of::<*mut c_void>(),
    "cust's Stream is more than its handle"
);

/// A handle as `cust` has it. `cust` has no function for this.
fn as_cust(handle: CUstream) -> ManuallyDrop<cust::stream::Stream> {
    let pointer: *mut c_void = std::ptr::with_exposed_provenance_mut(handle.0);
    // SAFETY: `cust`'s `Stream` is a struct with the handle, a pointer, as its one field; the
    // assertion above says that there is room for nothing else. So it has the pointer's layout,
    // and any pointer is a valid one. Nothing is destroyed twice: the `ManuallyDrop` is never
    // undone, and only shared references are handed out, which `cust` cannot be moved out of.
    unsafe { mem::transmute::<*mut c_void, ManuallyDrop<cust::stream::Stream>>(pointer) }
}

impl Stream {
    /// A non-blocking stream of the default priority.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let stream = cuguard::Stream::new(&context)?;
    /// assert!(stream.is_idle()?);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`], [`Error::OutOfMemory`], or what the driver says.
    #[track_caller]
    pub fn new(context: &Context) -> Result<Self> {
        Self::builder(context).build()
    }

    /// A stream with other settings.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let urgent = cuguard::Stream::builder(&context).priority(-5).build()?;
    /// assert_eq!(urgent.priority()?, -5);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn builder(context: &Context) -> StreamBuilder<'_> {
        StreamBuilder {
            context,
            flags: flags::STREAM_NON_BLOCKING,
            priority: 0,
        }
    }

    /// The priorities that the device tells apart, from the most urgent (the smallest number) to
    /// the least. A priority beyond them is taken for the nearest of them.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// use cuguard::Stream;
    ///
    /// let priorities = Stream::priorities(&context)?;
    /// let urgent = Stream::builder(&context).priority(*priorities.start()).build()?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`], or what the driver says.
    pub fn priorities(context: &Context) -> Result<RangeInclusive<i32>> {
        let entered = context.state().enter("Stream::priorities")?;
        let range = entered.check(context::stream_priority_range())?;
        Ok(range.greatest..=range.least)
    }

    pub(crate) fn core(&self) -> &Arc<StreamState> {
        &self.core
    }

    /// Gives the stream a name that reports show.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let stream = cuguard::Stream::new(&context)?.named("uploads");
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use = "the stream is handed back"]
    pub fn named(self, label: &str) -> Self {
        self.core.owned.name(label);
        self
    }

    /// The driver's handle, for code that calls the driver itself. It is valid until this guard or
    /// the context goes.
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
        self.core.handle()
    }

    /// The priority that the stream really has.
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
    /// [`Error::ContextClosed`], or what the driver says.
    pub fn priority(&self) -> Result<i32> {
        let entered = self.core.state().enter("Stream::priority")?;
        // SAFETY: the stream is alive.
        entered.check(unsafe { stream::priority(self.as_raw()) })
    }

    /// Waits until the device has done all that the stream was given.
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
    /// [`Error::ContextClosed`], or what the driver says, also about work that failed earlier.
    pub fn synchronize(&self) -> Result<()> {
        let entered = self.core.state().enter_to_wait("Stream::synchronize")?;
        self.core.progress().track_wait(|| {
            // SAFETY: the stream is alive.
            entered.check(unsafe { stream::synchronize(self.as_raw()) })
        })
    }

    /// Whether the device has done all that the stream was given. Does not wait.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let stream = cuguard::Stream::new(&context)?;
    /// while !stream.is_idle()? {
    ///     std::thread::yield_now(); // or something useful
    /// }
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`], or what the driver says, also about work that failed earlier.
    pub fn is_idle(&self) -> Result<bool> {
        let entered = self.core.state().enter("Stream::is_idle")?;
        // SAFETY: the stream is alive.
        entered.check(unsafe { stream::query(self.as_raw()) })
    }

    /// What this stream is given from now on waits until the event has happened. An event that was
    /// never recorded has. The calling thread does not wait.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// use cuguard::{Event, Stream};
    ///
    /// let (first, second) = (Stream::new(&context)?, Stream::new(&context)?);
    /// let half_way = Event::new(&context)?;
    /// half_way.record(&first)?;
    /// second.wait_for(&half_way)?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::WrongContext`], [`Error::ContextClosed`], or what the driver says.
    pub fn wait_for(&self, event: &Event) -> Result<()> {
        event.enqueue_wait("Stream::wait_for", &self.core)
    }

    /// What this stream is given from now on happens after all that `other` was given so far. The
    /// calling thread does not wait.
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
    /// [`Error::WrongContext`], [`Error::ContextClosed`], or what the driver says.
    pub fn order_after(&self, other: &Stream) -> Result<()> {
        const OPERATION: &str = "Stream::order_after";
        let (after, before) = (&self.core, &other.core);
        let this = ("the stream that waits", after.state());
        let that = ("the stream that it waits for", before.state());
        same_context::check(OPERATION, this, that)?;
        after.order_after(OPERATION, before)
    }

    /// Destroys the stream and tells whether the driver took it. It returns at once: what the
    /// stream still has to do is done all the same. Drop does the same and files what the driver
    /// refused for the report.
    ///
    /// A stream on which buffers are still to be freed goes with the last of them; until then it
    /// stays in the registry, and this answers `Ok`.
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
    /// [`Error::ContextClosed`] where the context went first (and destroyed it), or what the driver
    /// says.
    pub fn close(self) -> Result<()> {
        let last = self.into_last();
        last.map_or(Ok(()), |stream| stream.close("Stream::close"))
    }
}

impl Deref for Stream {
    type Target = cust::stream::Stream;

    /// # Panics
    ///
    /// Where the context is closed: the handle that `cust` would use is no longer one. Where the
    /// process is ending: the driver may be gone.
    #[track_caller]
    fn deref(&self) -> &cust::stream::Stream {
        let entered = self.core.state().enter("Stream::deref");
        if let Err(error @ (Error::ContextClosed { .. } | Error::ProcessEnding { .. })) = entered {
            panic!("{error}");
        }
        &self.cust
    }
}

/// How a [`Stream`] is to be; see [`Stream::builder`].
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// # let context = cuguard::Context::new(0)?;
/// let stream = cuguard::Stream::builder(&context).blocking().priority(-1).build()?;
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct StreamBuilder<'a> {
    context: &'a Context,
    flags: u32,
    priority: i32,
}

impl StreamBuilder<'_> {
    /// The stream and the default stream wait for each other. For programs that have other code on
    /// the default stream.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let stream = cuguard::Stream::builder(&context).blocking().build()?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn blocking(mut self) -> Self {
        self.flags &= !flags::STREAM_NON_BLOCKING;
        self
    }

    /// How urgent the stream's kernels are: a smaller number is more urgent, 0 is the default. See
    /// [`Stream::priorities`].
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let urgent = cuguard::Stream::builder(&context).priority(-1).build()?;
    /// assert_eq!(urgent.priority()?, -1);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Makes the stream.
    ///
    /// # Errors
    ///
    /// As [`Stream::new`].
    #[track_caller]
    pub fn build(self) -> Result<Stream> {
        let state = self.context.state();
        let request = Request::of_unknown_size("Stream::new", Some(Kind::Stream));
        let core = recovery::satisfy(state, &request, || {
            let _entered = state.enter(request.operation)?;
            let owner = self.context.open().into();
            let owned = core::allocate(owner, &request, Kind::Stream, "", || {
                stream::create_with_priority(self.flags, self.priority)
                    .map(|stream| stream.0 as u64)
            })?;
            let listed = ListedHandle::new(state, |state| &state.streams, owned.key());
            Ok(StreamState::new(listed, owned))
        })?;
        Ok(Stream {
            cust: as_cust(core.handle()),
            core: Arc::new(core),
        })
    }
}
