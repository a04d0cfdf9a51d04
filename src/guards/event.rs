//! Events.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cuguard_driver::result::event;
use cuguard_driver::sys::{CUevent, CUresult, flags};

use crate::core::lock::lock;
use crate::core::{
    self, ContextState, FreePoint, FreeProgress, OwnedResource, Request, StreamState, same_context,
};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::guards::{Context, Stream};
use crate::recovery;
use cuguard_registry::ResourceKind;

/// A CUDA event, recorded on a stream and complete when the stream reaches it.
///
/// Streams ([`Stream::wait_for`]) and threads ([`synchronize`](Self::synchronize)) wait for it, and
/// [`elapsed_since`](Self::elapsed_since) measures the time between two events on the device.
///
/// It can be used and dropped on any thread, even while streams wait for it: they continue to wait.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, Event, Stream};
///
/// let context = Context::new(0)?;
/// let stream = Stream::new(&context)?;
/// let (begin, end) = (Event::new(&context)?, Event::new(&context)?);
/// begin.record(&stream)?;
/// // ... work ...
/// end.record(&stream)?;
/// end.synchronize()?;
/// println!("the device took {:?}", end.elapsed_since(&begin)?);
/// # Ok::<(), cuguard::Error>(())
/// ```
#[must_use = "dropped at once if unused"]
#[doc(alias("CudaEvent", "cuEventCreate"))]
pub struct Event {
    pub(super) owned: OwnedResource,
    /// `None` for an event of other code.
    timed: Option<bool>,
    /// Where it was recorded last: after a wait for the event, the frees before that point are known to be complete.
    recorded_at: Mutex<RecordedAt>,
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.owned.fmt_guard("Event", f)
    }
}

/// The frees that were enqueued on the stream before the event; `None` if it was never recorded.
type RecordedAt = Option<(Arc<FreeProgress>, FreePoint)>;

impl Event {
    /// Creates an event with timing.
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`], [`Error::OutOfMemory`], or any other driver error.
    #[track_caller]
    pub fn new(context: &Context) -> Result<Self> {
        Self::with_flags("Event::new", context, 0)
    }

    /// Creates an event without timing, which is cheaper for the device.
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`], [`Error::OutOfMemory`], or any other driver error.
    #[track_caller]
    pub fn without_timing(context: &Context) -> Result<Self> {
        let flags = flags::EVENT_DISABLE_TIMING;
        Self::with_flags("Event::without_timing", context, flags)
    }

    /// Creates an event without timing for which threads sleep in [`synchronize`](Self::synchronize), rather than spin.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// let done = cuguard::Event::blocking(&context)?;
    /// done.record(&stream)?;
    /// done.synchronize()?; // sleeps meanwhile
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`], [`Error::OutOfMemory`], or any other driver error.
    #[track_caller]
    pub fn blocking(context: &Context) -> Result<Self> {
        let flags = flags::EVENT_DISABLE_TIMING | flags::EVENT_BLOCKING_SYNC;
        Self::with_flags("Event::blocking", context, flags)
    }

    #[track_caller]
    fn with_flags(operation: &'static str, context: &Context, flags: u32) -> Result<Self> {
        let state = context.state();
        let request = Request::of_unknown_size(operation, Some(ResourceKind::Event));
        let owned = recovery::with_recovery(state, &request, || {
            let _entered = state.enter(operation)?;
            core::allocate(
                state,
                &request,
                ResourceKind::Event,
                "",
                || context.open().into(),
                || event::create(flags).map(|event| event.0 as u64),
            )
        })?;
        Ok(Self {
            owned,
            timed: Some(flags & flags::EVENT_DISABLE_TIMING == 0),
            recorded_at: Mutex::default(),
        })
    }

    /// An event of other code.
    pub(super) fn foreign(owned: OwnedResource) -> Self {
        Self {
            owned,
            timed: None,
            recorded_at: Mutex::default(),
        }
    }

    /// Work enqueued on the stream from now on waits for this event.
    pub(crate) fn enqueue_wait(&self, operation: &'static str, stream: &StreamState) -> Result<()> {
        let stream_of = ("the stream", stream.state());
        same_context::check(operation, stream_of, ("the event", self.state()))?;
        stream.wait_for(operation, self.as_raw())
    }

    pub(crate) fn state(&self) -> &Arc<ContextState> {
        self.owned.state()
    }

    /// The driver's handle, for code that calls the driver directly. Valid until this guard is dropped or its
    /// context is closed.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let event = cuguard::Event::new(&context)?;
    /// let _bound = context.make_current()?;
    /// // SAFETY: the event is alive.
    /// let code = unsafe { cuguard::driver::api::cuEventQuery(event.as_raw()) };
    /// assert!(code.is_success()); // an event that was never recorded is complete
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn as_raw(&self) -> CUevent {
        CUevent(self.owned.address() as usize)
    }

    /// Names the event in reports.
    #[must_use = "returns the guard"]
    pub fn with_label(self, label: &str) -> Self {
        self.owned.name(label);
        self
    }

    /// Records the event on the stream, after all work that is enqueued so far. An event can be recorded again; only the
    /// last recording counts.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// let event = cuguard::Event::new(&context)?;
    /// event.record(&stream)?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::WrongContext`], [`Error::ContextClosed`], or any other driver error.
    #[doc(alias("cuEventRecord", "record_event"))]
    pub fn record(&self, stream: &Stream) -> Result<()> {
        self.record_on("Event::record", stream.stream_state())
    }

    pub(crate) fn record_on(&self, operation: &'static str, stream: &StreamState) -> Result<()> {
        let stream_of = ("the stream", stream.state());
        same_context::check(operation, ("the event", self.state()), stream_of)?;
        let entered = self.state().enter(operation)?;
        // Locked, so that `recorded_at` belongs to the driver's last recording. Read before the call, so that the event
        // is ordered after every free that it includes.
        let mut recorded_at = lock(&self.recorded_at);
        let point = (stream.progress().clone(), stream.progress().point());
        // SAFETY: both are alive and of the current context.
        entered.check(unsafe { event::record(self.as_raw(), stream.handle()) })?;
        // Other code may record its event again, elsewhere.
        *recorded_at = self.timed.map(|_| point);
        Ok(())
    }

    /// Waits until the event is complete. An event that was never recorded is complete.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// let event = cuguard::Event::new(&context)?;
    /// event.record(&stream)?;
    /// event.synchronize()?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`], or any other driver error, including that of earlier asynchronous work.
    #[doc(alias = "cuEventSynchronize")]
    pub fn synchronize(&self) -> Result<()> {
        let entered = self.state().enter_to_wait("Event::synchronize")?;
        let before = lock(&self.recorded_at).clone();
        // SAFETY: the event is alive.
        entered.check(unsafe { event::synchronize(self.as_raw()) })?;
        // If the event was recorded again meanwhile, it is unknown which recording this waited for.
        if let (Some((progress, point)), Some(now)) = (before, &*lock(&self.recorded_at))
            && Arc::ptr_eq(&progress, &now.0)
            && point == now.1
        {
            progress.complete_to(point);
        }
        Ok(())
    }

    /// Whether the event is complete. An event that was never recorded is complete. Does not block.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// let event = cuguard::Event::new(&context)?;
    /// event.record(&stream)?;
    /// stream.synchronize()?;
    /// assert!(event.is_complete()?);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`], or any other driver error, including that of earlier asynchronous work.
    #[doc(alias("query", "cuEventQuery"))]
    pub fn is_complete(&self) -> Result<bool> {
        let entered = self.state().enter("Event::is_complete")?;
        // SAFETY: the event is alive.
        entered.check(unsafe { event::query(self.as_raw()) })
    }

    /// The time from `earlier` to this event on the device, with a resolution of about half a microsecond. Zero if
    /// `earlier` is the later one, as with [`Instant`](std::time::Instant::duration_since).
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// use cuguard::Event;
    ///
    /// let (begin, end) = (Event::new(&context)?, Event::new(&context)?);
    /// let error = end.elapsed_since(&begin).unwrap_err();
    /// assert!(error.to_string().contains("was never recorded"), "{error}");
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::WrongContext`], [`Error::ContextClosed`], or any other driver error. The message has the reason if an
    /// event was created without timing, was never recorded, or is not complete.
    #[doc(alias("elapsed_ms", "elapsed_time_f32", "cuEventElapsedTime"))]
    pub fn elapsed_since(&self, earlier: &Event) -> Result<Duration> {
        const OPERATION: &str = "Event::elapsed_since";
        let earlier_of = ("the earlier event", earlier.state());
        same_context::check(OPERATION, ("the later event", self.state()), earlier_of)?;
        let entered = self.state().enter(OPERATION)?;
        // SAFETY: both events are alive.
        let elapsed = unsafe { event::elapsed_time(earlier.as_raw(), self.as_raw()) };
        drop(entered);
        // The driver has one code for several causes.
        let operation = match elapsed.err().map_or(CUresult::SUCCESS, |error| error.code) {
            CUresult::NOT_READY => "Event::elapsed_since (one of the events is not complete)",
            CUresult::INVALID_HANDLE if [self.timed, earlier.timed].contains(&Some(false)) => {
                "Event::elapsed_since (one of the events was created without timing)"
            }
            CUresult::INVALID_HANDLE if [self.timed, earlier.timed].contains(&None) => {
                "Event::elapsed_since (one of the events was created without timing, or was never recorded)"
            }
            CUresult::INVALID_HANDLE => {
                "Event::elapsed_since (one of the events was never recorded)"
            }
            _ => OPERATION,
        };
        let milliseconds = self.state().check(operation, elapsed, None)?;
        let seconds = f64::from(milliseconds.max(0.0)) / 1e3;
        Ok(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }

    /// Destroys the event and returns the driver's error, if any. A failed free is in the report, by `close` or by drop.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// cuguard::Event::new(&context)?.close()?;
    /// assert_eq!(context.live_count(), 0);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`] if the context was closed first, or any other driver error.
    pub fn close(self) -> Result<()> {
        self.owned.close("Event::close")
    }
}

impl Stream {
    /// Work enqueued on this stream from now on waits for the event (`cuStreamWaitEvent`). An event that was never
    /// recorded counts as complete. Does not block the calling thread.
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
    /// [`Error::WrongContext`], [`Error::ContextClosed`], or any other driver error.
    #[doc(alias("wait_event", "cuStreamWaitEvent"))]
    pub fn wait_for(&self, event: &Event) -> Result<()> {
        event.enqueue_wait("Stream::wait_for", self.stream_state())
    }
}
