//! The context: the one owner of the driver's context, and the place where leaks are told.

use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;

use cuguard_driver::result::{context, memory};
use cuguard_driver::sys::CUcontext;

use crate::core::{ContextState, OpenContext, ReleaseCallback, handle_list};
use crate::error::{Error, Result};
use crate::guards::ContextBuilder;
use crate::recovery;
use cuguard_registry::{Kind, Level, Snapshot, SnapshotReason, Totals};
use cuguard_sync::process;

/// A CUDA context, and custody of all that is made in it.
///
/// It is made from the device's primary context unless an own one is asked for. Everything else
/// (buffers, streams, events, modules) is made with a reference to it, works on any thread, and
/// finds this context by itself: nothing here depends on which context is current, and no thread's
/// current context is changed.
///
/// There is one owner: a `Context` cannot be cloned. Share it by reference or in an [`Arc`].
///
/// A `Context` that is dropped while resources of it are alive stays open until the last of them is
/// dropped, and is torn down then, on whatever thread that is. So the order of fields in a struct does
/// not matter. What is never dropped keeps the context open until the process exits, and is reported
/// then (see the [manual](crate#leak_report)), with the place where the context was dropped.
///
/// [`close`](Self::close) tears the context down at once, whatever is still alive in it.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, DeviceBuffer};
///
/// let context = Context::new(0)?;
/// let buffer = DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
/// assert_eq!(context.live_bytes(), 12);
/// drop(buffer);
/// context.close()?;
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "a context that is not kept is torn down at once"]
pub struct Context {
    open: Arc<OpenContext>,
}

/// Memory of a device, as its driver tells it.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// let context = cuguard::Context::new(0)?;
/// let memory = context.memory()?;
/// assert!(memory.free < memory.total);
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryInfo {
    /// Bytes that nobody uses.
    pub free: u64,
    /// All bytes.
    pub total: u64,
}

impl Context {
    /// The primary context of a device; devices are numbered from 0.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// let context = cuguard::Context::new(0)?;
    /// assert_eq!(context.device(), 0);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Load`] where there is no driver, [`Error::NoSuchDevice`], [`Error::ProcessEnding`], or
    /// what the driver says.
    pub fn new(ordinal: u32) -> Result<Self> {
        Self::builder().device(ordinal).build()
    }

    /// A context with other settings.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::{Context, Level};
    ///
    /// let context = Context::builder().device(0).dedicated().level(Level::Stacks).build()?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn builder() -> ContextBuilder {
        ContextBuilder::default()
    }

    pub(crate) fn of(state: Arc<ContextState>) -> Self {
        let open = OpenContext::new(state);
        Self { open }
    }

    pub(crate) fn state(&self) -> &Arc<ContextState> {
        &self.open
    }

    /// What every guard of this context shares, so that the context stays open for it.
    pub(crate) fn open(&self) -> &Arc<OpenContext> {
        &self.open
    }

    /// The device's number.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// let context = cuguard::Context::new(0)?;
    /// assert_eq!(context.device(), 0);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn device(&self) -> u32 {
        self.state().device
    }

    /// The device's name.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// let context = cuguard::Context::new(0)?;
    /// assert_eq!(context.device_name(), context.snapshot().info.device_name);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn device_name(&self) -> &str {
        &self.state().device_name
    }

    /// The driver's handle, for code that calls the driver itself. It is valid until this context
    /// goes.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::driver::{api, sys::CUcontext};
    ///
    /// let context = cuguard::Context::new(0)?;
    /// let _bound = context.make_current()?;
    /// let mut current = CUcontext::NULL;
    /// // SAFETY: the variable can be written to.
    /// assert!(unsafe { api::cuCtxGetCurrent(&mut current) }.is_success());
    /// assert_eq!(current, context.as_raw());
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn as_raw(&self) -> CUcontext {
        self.state().context
    }

    /// The device's memory, as the driver tells it.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// let context = cuguard::Context::new(0)?;
    /// let before = context.memory()?.free;
    /// let buffer = cuguard::DeviceBuffer::<u8>::zeroed(&context, 8 << 20)?;
    /// assert!(context.memory()?.free < before);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// What the driver says.
    pub fn memory(&self) -> Result<MemoryInfo> {
        let entered = self.state().enter_to_wait("Context::memory")?;
        let info = entered.check(memory::info())?;
        Ok(MemoryInfo {
            free: info.free as u64,
            total: info.total as u64,
        })
    }

    /// Waits until the device has done all that this context was given.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// cuguard::Context::new(0)?.synchronize()?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// What the driver says, also about work that failed earlier.
    pub fn synchronize(&self) -> Result<()> {
        let entered = self.state().enter_to_wait("Context::synchronize")?;
        handle_list::track_context_wait(self.state(), || entered.check(context::synchronize()))?;
        // The device has passed all that streams left which are gone.
        handle_list::destroy_complete_events(self.state());
        Ok(())
    }

    /// Makes this context current on the calling thread until the answer goes, for `cust` and
    /// other code that depends on it. Nothing in this crate does.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// let context = cuguard::Context::new(0)?;
    /// let bound = context.make_current()?;
    /// let buffer = cust::memory::DeviceBuffer::from_slice(&[1, 2, 3])?; // not in state
    /// drop(buffer);
    /// drop(bound);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// What the driver says.
    pub fn make_current(&self) -> Result<ContextGuard<'_>> {
        const OPERATION: &str = "Context::make_current";
        let Some(_inside) = self.state().try_enter() else {
            // It cannot be closed, as it is borrowed.
            return Err(Error::ProcessEnding {
                operation: OPERATION,
            });
        };
        // SAFETY: the context is alive.
        let pushed = unsafe { context::push_current(self.state().context) };
        self.state().check(OPERATION, pushed, None)?;
        Ok(ContextGuard {
            context: self,
            _this_thread: PhantomData,
        })
    }

    /// The bytes of memory that guards of this context hold now, of all kinds.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// let context = cuguard::Context::new(0)?;
    /// let buffer = cuguard::DeviceBuffer::<u32>::zeroed(&context, 100)?;
    /// assert_eq!(context.live_bytes(), 400);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        self.state().registry.live().bytes
    }

    /// How many things guards of this context hold now: memory, streams, events, modules, pools.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// let context = cuguard::Context::new(0)?;
    /// let stream = cuguard::Stream::new(&context)?;
    /// let buffer = cuguard::DeviceBuffer::<u32>::zeroed(&context, 100)?;
    /// assert_eq!(context.live_count(), 2);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn live_count(&self) -> u64 {
        self.state().registry.live().count
    }

    /// What is alive of one kind, and its peak.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::{Context, DeviceBuffer, Kind};
    ///
    /// let context = Context::new(0)?;
    /// drop(DeviceBuffer::<u8>::zeroed(&context, 1000)?);
    /// let totals = context.totals(Kind::Device);
    /// assert_eq!((totals.bytes, totals.peak_bytes), (0, 1000));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn totals(&self, kind: Kind) -> Totals {
        self.state().registry.totals(kind)
    }

    /// All that is alive now, with the places that made it, as plain data. In a forked child it has the
    /// totals only.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::{Context, DeviceBuffer};
    ///
    /// let context = Context::new(0)?;
    /// let before = context.snapshot();
    /// let buffer = DeviceBuffer::<u8>::zeroed(&context, 1000)?;
    /// println!("{}", context.snapshot().diff(&before));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.state().snapshot(SnapshotReason::Requested)
    }

    /// Remembers what is alive now. Where memory runs out later, the error tells which places have
    /// grown since: a program that works in steps calls this once, after the first few.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::{Context, DeviceBuffer, Error};
    ///
    /// let context = Context::builder().memory_limit(1 << 20).build()?;
    /// let mut kept = Vec::new();
    /// let error = loop {
    ///     match DeviceBuffer::<u8>::zeroed(&context, 100_000) {
    ///         Ok(buffer) => kept.push(buffer), // that is the leak
    ///         Err(error) => break error,
    ///     }
    ///     if kept.len() == 1 {
    ///         context.mark_oom_baseline();
    ///     }
    /// };
    /// let Error::OutOfMemory(why) = error else { panic!("{error}") };
    /// assert_eq!(why.holders[0].growth, Some(900_000));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn mark_oom_baseline(&self) {
        self.state().registry.mark();
    }

    /// The largest block that could be allocated now, in whole pages of the device or as much as the
    /// [memory limit](ContextBuilder::memory_limit) leaves. It is found by trying, with dozens of
    /// allocations and frees: other threads may be refused meanwhile what they would have got, and
    /// pools give unused memory back, so it may be more than is free.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// let context = cuguard::Context::new(0)?;
    /// assert!(context.largest_block()? > 0);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// What the driver says.
    pub fn largest_block(&self) -> Result<u64> {
        recovery::largest_block(self.state(), "Context::largest_block")
    }

    /// Has `callback` called when an allocation in this context finds too little memory, before it
    /// fails: a cache can give back what it can do without. It is told how many bytes were asked
    /// for. After it, the allocation is tried again. It is called on the thread that allocates, and
    /// by several threads at once if they run out of memory at once; what it allocates itself does
    /// not call it again. A panic in it goes through the allocation. **It must not wait for a lock that
    /// code holds while it allocates**, or that code waits for itself: `try_lock` does not.
    ///
    /// It is called as well where a stream, an event, a module, a memory pool or a launch finds too
    /// little memory. How many bytes that wants nobody but the driver knows: it is told
    /// `u64::MAX` then, and gives back what it can.
    ///
    /// Callbacks are called in the order of registration, until the returned guard or this `Context` is
    /// dropped (one that another thread is in goes on, and what it owns is dropped when it is over): a
    /// context that stays open for its resources has no callbacks any more, as what they own would keep
    /// it open for ever. One that another thread is in while the context is
    /// closed is waited for, so that it can still drop what it likes; for one second at most, as it may
    /// wait for the very thread that closes. What it holds after that has leaked, as any guard that
    /// outlives its context. What was to be had after it is an
    /// [`Error::ContextClosed`](crate::Error::ContextClosed).
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use std::sync::{Arc, Mutex};
    /// use cuguard::{Context, DeviceBuffer};
    ///
    /// let context = Context::builder().memory_limit(1 << 20).build()?;
    /// let cache = Arc::new(Mutex::new(Some(DeviceBuffer::<u8>::zeroed(&context, 1 << 20)?)));
    /// let callback = context.release_on_oom({
    ///     let cache = cache.clone();
    ///     move |_bytes| {
    ///         if let Ok(mut cache) = cache.try_lock() {
    ///             cache.take();
    ///         }
    ///     }
    /// });
    /// let buffer = DeviceBuffer::<u8>::zeroed(&context, 1 << 20)?; // the cache makes room
    /// assert!(cache.lock().unwrap().is_none());
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn release_on_oom(
        &self,
        callback: impl Fn(u64) + Send + Sync + 'static,
    ) -> ReleaseCallback {
        ReleaseCallback::register(self.state(), Arc::new(callback))
    }

    /// Changes what is recorded of what is made from now on.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::{Context, DeviceBuffer, Level};
    ///
    /// let context = Context::new(0)?;
    /// context.set_level(Level::Stacks); // for the part of the program that is under suspicion
    /// let suspect = DeviceBuffer::<u8>::zeroed(&context, 100)?;
    /// context.set_level(Level::Counts);
    /// assert_eq!(context.snapshot().live.len(), 1);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn set_level(&self, level: Level) {
        self.state().registry.set_level(level);
    }

    /// Tears the context down now: waits for the device, frees what is still alive, releases the
    /// driver's context, and reports what was alive as leaked. Guards that outlive it turn inert: to
    /// use them is an [`Error::ContextClosed`], to drop them does nothing.
    ///
    /// Freed is every resource that has a record. There are none at [`Level::Counts`], for what no
    /// [sample](crate::report::ReportSettings::sample) met, and nothing is freed without
    /// [`free_leaks`](ContextBuilder::free_leaks): such memory is lost until the driver's context is
    /// destroyed, which others may hold, as the primary context; stream-ordered memory until the
    /// process exits.
    ///
    /// Inside a host function of a stream the driver permits no call: this fails with
    /// `CUDA_ERROR_NOT_PERMITTED`, and the context is torn down later, as if it had been dropped.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::{Context, DeviceBuffer, Error};
    ///
    /// let context = Context::new(0)?;
    /// let buffer = DeviceBuffer::from_slice(&context, &[1, 2, 3])?; // leaked: it outlives the context
    /// context.close()?;
    /// assert!(matches!(buffer.to_vec(), Err(Error::ContextClosed { .. })));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The first driver error: of work that failed earlier, of a free, of the release. The rest is
    /// done all the same, and all errors of frees, also in earlier drops, are in the report.
    #[track_caller]
    pub fn close(self) -> Result<()> {
        let state = self.state();
        state.note_closed(Location::caller());
        state.tear_down("Context::close", SnapshotReason::Close)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let state = self.state();
        if state.is_closed() || process::is_exiting() {
            return;
        }
        // They may own guards, which would keep the context open for ever.
        state.drop_callbacks();
        if Arc::strong_count(&self.open) > 1 {
            state.note_dropped();
        }
    }
}

/// The context is current on this thread until this goes; see [`Context::make_current`]. Where several are
/// kept at once, they may go in any order; one that is forgotten leaves its context on the thread's
/// stack of contexts.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, ContextGuard};
///
/// let context = Context::new(0)?;
/// let current: ContextGuard<'_> = context.make_current()?;
/// assert!(cust::memory::DeviceBox::new(&1).is_ok());
/// drop(current);
/// assert!(cust::memory::DeviceBox::new(&1).is_err()); // no context is current
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "the context is current only as long as this is kept"]
pub struct ContextGuard<'a> {
    context: &'a Context,
    /// The stack of current contexts is a thread's own.
    _this_thread: PhantomData<*const ()>,
}

impl Drop for ContextGuard<'_> {
    fn drop(&mut self) {
        let Some(_inside) = self.context.state().try_enter() else {
            return;
        };
        // The driver keeps a stack of contexts for each thread. Others that were put on it since
        // stay there.
        let ours = self.context.state().context;
        let mut others = Vec::new();
        while let Ok(popped) = context::pop_current()
            && popped != ours
        {
            others.push(popped);
        }
        for other in others.into_iter().rev() {
            // SAFETY: it was on the stack a moment ago.
            let _ = unsafe { context::push_current(other) };
        }
    }
}
