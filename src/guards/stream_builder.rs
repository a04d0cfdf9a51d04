//! How streams are created.

use std::ops::RangeInclusive;
use std::sync::Arc;

use cuguard_driver::result::{context, stream};
use cuguard_driver::sys::flags;

use crate::core::{self, ListedHandle, Owner, Request, StreamState};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::guards::{Context, Stream};
use crate::recovery;
use cuguard_registry::ResourceKind;

impl Stream {
    /// Creates a non-blocking stream with the default priority.
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
    /// [`Error::ContextClosed`], [`Error::OutOfMemory`], or any other driver error.
    #[track_caller]
    pub fn new(context: &Context) -> Result<Self> {
        Self::builder(context).build()
    }

    /// Configures a stream.
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

    /// The priorities that the device supports, from the highest (the smallest number) to the lowest. Other priorities
    /// are clamped to this range.
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
    /// [`Error::ContextClosed`], or any other driver error.
    pub fn priorities(context: &Context) -> Result<RangeInclusive<i32>> {
        let entered = context.state().enter("Stream::priorities")?;
        let range = entered.check(context::stream_priority_range())?;
        Ok(range.greatest..=range.least)
    }
}

/// Configures a [`Stream`]; see [`Stream::builder`].
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
    /// Synchronizes the stream with the default stream (`CU_STREAM_DEFAULT`), for programs in which other code uses the
    /// default stream.
    pub fn blocking(mut self) -> Self {
        self.flags &= !flags::STREAM_NON_BLOCKING;
        self
    }

    /// Sets the priority of the stream. Smaller numbers are higher priorities; the default is 0. See
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

    /// Creates the stream.
    ///
    /// # Errors
    ///
    /// As [`Stream::new`].
    #[track_caller]
    pub fn build(self) -> Result<Stream> {
        let owner = self.context.open().into();
        let created = create("Stream::new", &owner, self.flags, self.priority)?;
        Ok(Stream::from_state(created))
    }
}

/// Creates a stream.
#[track_caller]
fn create(
    operation: &'static str,
    owner: &Owner,
    flags: u32,
    priority: i32,
) -> Result<Arc<StreamState>> {
    let state = owner.state();
    let request = Request::of_unknown_size(operation, Some(ResourceKind::Stream));
    recovery::with_recovery(state, &request, || {
        let _entered = state.enter(operation)?;
        let owner = || owner.clone();
        let owned = core::allocate(state, &request, ResourceKind::Stream, "", owner, || {
            stream::create_with_priority(flags, priority).map(|stream| stream.0 as u64)
        })?;
        let listed = ListedHandle::new(state, |state| &state.streams, owned.key());
        Ok(Arc::new(StreamState::new(listed, owned)))
    })
}

impl Stream {
    /// A stream of the same priority, on which work is captured. On this stream itself the work of other code would be
    /// captured too.
    #[track_caller]
    pub(crate) fn for_capture(&self, operation: &'static str) -> Result<Arc<StreamState>> {
        let entered = self.state().enter(operation)?;
        // SAFETY: the stream is alive.
        let priority = entered.check(unsafe { stream::priority(self.as_raw()) })?;
        drop(entered);
        let owner = self.stream_state().owned.owner();
        create(operation, owner, flags::STREAM_NON_BLOCKING, priority)
    }
}
