//! Events: marks in the work of a stream, which can be waited for and timed.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cuguard_driver::result::event;
use cuguard_driver::sys::{CUevent, CUresult, flags};

use crate::core::{
    self, ContextState, FreePoint, FreeProgress, OwnedResource, Request, StreamState, same_context,
};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::guards::{Context, Stream};
use crate::recovery;
use cuguard_registry::Kind;

/// A mark in the work of a stream: it happens when the stream gets there.
///
/// Others wait for it ([`Stream::wait_for`], [`synchronize`](Self::synchronize)), and the time
/// between two of them is the device's own ([`elapsed_since`](Self::elapsed_since)).
///
/// It can be used and dropped on any thread, also while streams wait for it: they go on waiting.
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
#[derive(Debug)]
#[must_use = "what is not kept is freed at once"]
pub struct Event {
    owned: OwnedResource,
    timed: bool,
    /// Where it was recorded last: who waits for it has then waited for frees before it.
    moment: Mutex<Option<(Arc<FreeProgress>, FreePoint)>>,
}

impl Event {
    /// An event that can be waited for and timed.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let event = cuguard::Event::new(&context)?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`], [`Error::OutOfMemory`], or what the driver says.
    #[track_caller]
    pub fn new(context: &Context) -> Result<Self> {
        Self::with("Event::new", context, true)
    }

    /// An event that can be waited for. It costs the device less than one that is timed.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let event = cuguard::Event::without_timing(&context)?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`], [`Error::OutOfMemory`], or what the driver says.
    #[track_caller]
    pub fn without_timing(context: &Context) -> Result<Self> {
        Self::with("Event::without_timing", context, false)
    }

    #[track_caller]
    fn with(operation: &'static str, context: &Context, timed: bool) -> Result<Self> {
        let state = context.state();
        let flags = if timed {
            0
        } else {
            flags::EVENT_DISABLE_TIMING
        };
        let request = Request::of_unknown_size(operation, Some(Kind::Event));
        let owned = recovery::satisfy(state, &request, || {
            let _entered = state.enter(operation)?;
            core::allocate(context.open().into(), &request, Kind::Event, "", || {
                event::create(flags).map(|event| event.0 as u64)
            })
        })?;
        Ok(Self {
            owned,
            timed,
            moment: Mutex::default(),
        })
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

    /// The driver's handle, for code that calls the driver itself. It is valid until this guard or
    /// the context goes.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let event = cuguard::Event::new(&context)?;
    /// let _bound = context.make_current()?;
    /// // SAFETY: the event is alive.
    /// let code = unsafe { cuguard::driver::api::cuEventQuery(event.as_raw()) };
    /// assert!(code.is_success()); // nothing was recorded, so nothing is waited for
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn as_raw(&self) -> CUevent {
        CUevent(self.owned.address() as usize)
    }

    /// Gives the event a name that reports show.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let event = cuguard::Event::new(&context)?.named("batch done");
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use = "the event is handed back"]
    pub fn named(self, label: &str) -> Self {
        self.owned.name(label);
        self
    }

    /// Puts the mark behind all that the stream was given so far. An event can be recorded again;
    /// the last time counts.
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
    /// [`Error::WrongContext`], [`Error::ContextClosed`], or what the driver says.
    pub fn record(&self, stream: &Stream) -> Result<()> {
        self.record_on("Event::record", stream.core())
    }

    pub(crate) fn record_on(&self, operation: &'static str, stream: &StreamState) -> Result<()> {
        let stream_of = ("the stream", stream.state());
        same_context::check(operation, ("the event", self.state()), stream_of)?;
        let entered = self.state().enter(operation)?;
        // Locked, so that what is kept is the driver's last; and taken before, so that the event is
        // after all that is in the moment.
        let mut last = self.lock_moment();
        let moment = (stream.progress().clone(), stream.progress().point());
        // SAFETY: both are alive and of the current context.
        entered.check(unsafe { event::record(self.as_raw(), stream.handle()) })?;
        *last = Some(moment);
        Ok(())
    }

    fn lock_moment(&self) -> MutexGuard<'_, Option<(Arc<FreeProgress>, FreePoint)>> {
        self.moment.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the event has happened. One that was never recorded has.
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
    /// [`Error::ContextClosed`], or what the driver says, also about work that failed earlier.
    pub fn synchronize(&self) -> Result<()> {
        let entered = self.state().enter_to_wait("Event::synchronize")?;
        let before = self.lock_moment().clone();
        // SAFETY: the event is alive.
        entered.check(unsafe { event::synchronize(self.as_raw()) })?;
        // Where it was recorded again meanwhile, nobody knows for which of the two this waited.
        if let (Some((notes, moment)), Some(now)) = (before, &*self.lock_moment())
            && Arc::ptr_eq(&notes, &now.0)
            && moment == now.1
        {
            notes.complete_to(moment);
        }
        Ok(())
    }

    /// Whether the event has happened. One that was never recorded has. Does not wait.
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
    /// [`Error::ContextClosed`], or what the driver says, also about work that failed earlier.
    pub fn is_complete(&self) -> Result<bool> {
        let entered = self.state().enter("Event::is_complete")?;
        // SAFETY: the event is alive.
        entered.check(unsafe { event::query(self.as_raw()) })
    }

    /// The time from `earlier` to this event, by the device's clock, which ticks about every half
    /// microsecond. Zero where `earlier` came later, as with
    /// [`Instant`](std::time::Instant::duration_since).
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
    /// [`Error::WrongContext`] and [`Error::ContextClosed`]; what the driver says, with the reason,
    /// where one of the two was made without timing, was never recorded, or has not happened yet.
    pub fn elapsed_since(&self, earlier: &Event) -> Result<Duration> {
        const OPERATION: &str = "Event::elapsed_since";
        let earlier_of = ("the earlier event", earlier.state());
        same_context::check(OPERATION, ("the later event", self.state()), earlier_of)?;
        let entered = self.state().enter(OPERATION)?;
        // SAFETY: both events are alive.
        let elapsed = unsafe { event::elapsed_time(earlier.as_raw(), self.as_raw()) };
        drop(entered);
        // The driver has one code for several reasons.
        let operation = match elapsed.err().map_or(CUresult::SUCCESS, |error| error.code) {
            CUresult::NOT_READY => "Event::elapsed_since (one of the events has not happened yet)",
            CUresult::INVALID_HANDLE if !(self.timed && earlier.timed) => {
                "Event::elapsed_since (one of the events was made without timing)"
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

    /// Destroys the event and tells whether the driver took it. Drop does the same and files what
    /// the driver refused for the report.
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
    /// [`Error::ContextClosed`] where the context went first (and destroyed it), or what the driver
    /// says.
    pub fn close(self) -> Result<()> {
        self.owned.close("Event::close")
    }
}
