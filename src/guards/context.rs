//! The owner of a CUDA context, whose teardown reports leaks.

use std::panic::Location;
use std::sync::{Arc, OnceLock};

use cuguard_driver::result::context;
use cuguard_driver::sys::CUcontext;

use crate::core::{ContextState, OpenContext, ReleaseCallback, listed_handle};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
#[cfg(doc)]
use crate::guards::ContextBuilder;
use crate::guards::{Device, Stream};
use cuguard_registry::{ResourceKind, Snapshot, SnapshotReason, Totals, TrackingLevel};
use cuguard_sync::process;

/// A CUDA context. Records every resource that is created in it and reports leaks at teardown.
///
/// By default it retains the device's primary context; [`ContextBuilder::dedicated`] creates a new one. Buffers,
/// streams, events and modules are created with a reference to the `Context` and work on any thread: each operation makes
/// the context current for its own duration and restores what was current before.
///
/// A `Context` has one owner and cannot be cloned. Share it by reference or in an [`Arc`].
///
/// A `Context` that is dropped while resources are alive stays open until the last of them is dropped, on any thread,
/// and is torn down then. So the order of fields in a struct does not matter. A resource that is never dropped keeps the
/// context open until the process exits, and the exit report lists it (see the [manual](crate::guide::leak_reports)), with the
/// stack trace of the context's drop.
///
/// [`close`](Self::close) tears the context down immediately, even if resources are alive.
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
#[must_use = "torn down at once if unused"]
#[doc(alias("CudaContext", "cuCtxCreate", "cuDevicePrimaryCtxRetain", "quick_init"))]
pub struct Context {
    /// The home of buffers that come from the context's pool. It keeps the context open, so it is dropped first.
    default: OnceLock<Stream>,
    open: Arc<OpenContext>,
}

impl Context {
    pub(super) fn from_state(state: Arc<ContextState>) -> Self {
        let open = OpenContext::new(state);
        Self {
            default: OnceLock::new(),
            open,
        }
    }

    pub(crate) fn state(&self) -> &Arc<ContextState> {
        &self.open
    }

    /// The default stream, as the home of buffers that come from a pool.
    pub(crate) fn default_stream(&self) -> Result<&Stream> {
        if let Some(stream) = self.default.get() {
            return Ok(stream);
        }
        let stream = Stream::default_stream(self)?;
        Ok(self.default.get_or_init(|| stream))
    }

    /// Keeps the context open; every guard of this context holds a clone.
    pub(crate) fn open(&self) -> &Arc<OpenContext> {
        &self.open
    }

    /// The device.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::device::DeviceAttribute;
    /// use cuguard::Context;
    ///
    /// let context = Context::new(0)?;
    /// assert_eq!(context.device().attribute(DeviceAttribute::WarpSize)?, 32);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn device(&self) -> Device {
        Device::existing(self.state().device)
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

    /// The driver's handle, for code that calls the driver directly. Valid until this context is torn down.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::driver::{api, sys::CUcontext};
    ///
    /// let context = cuguard::Context::new(0)?;
    /// let _bound = context.make_current()?;
    /// let mut current = CUcontext::NULL;
    /// // SAFETY: `current` is valid for writes.
    /// assert!(unsafe { api::cuCtxGetCurrent(&mut current) }.is_success());
    /// assert_eq!(current, context.as_raw());
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn as_raw(&self) -> CUcontext {
        self.state().context
    }

    /// Waits until all work of this context is complete.
    ///
    /// # Errors
    ///
    /// Any driver error, including that of earlier asynchronous work.
    #[doc(alias("cuCtxSynchronize", "cudaDeviceSynchronize"))]
    pub fn synchronize(&self) -> Result<()> {
        let entered = self.state().enter_to_wait("Context::synchronize")?;
        listed_handle::track_context_wait(self.state(), || entered.check(context::synchronize()))?;
        // The device has completed the work of destroyed streams too.
        listed_handle::destroy_complete_events(self.state());
        self.state().pools_of_cuguard().destroy_orphans();
        Ok(())
    }

    /// The live memory of this context, of all kinds, in bytes.
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

    /// The number of live resources of this context: memory, streams, events, modules, pools.
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

    /// The live and peak counts and bytes of one kind of resource.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::{Context, DeviceBuffer, ResourceKind};
    ///
    /// let context = Context::new(0)?;
    /// drop(DeviceBuffer::<u8>::zeroed(&context, 1000)?);
    /// let totals = context.totals(ResourceKind::Device);
    /// assert_eq!((totals.bytes, totals.peak_bytes), (0, 1000));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn totals(&self, kind: ResourceKind) -> Totals {
        self.state().registry.totals(kind)
    }

    /// All live resources with their call sites, as plain data. In a forked child, only the totals.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::report::display_diff;
    /// use cuguard::{Context, DeviceBuffer};
    ///
    /// let context = Context::new(0)?;
    /// let before = context.snapshot();
    /// let buffer = DeviceBuffer::<u8>::zeroed(&context, 1000)?;
    /// println!("{}", display_diff(&context.snapshot().diff(&before)));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.state().snapshot(SnapshotReason::Requested)
    }

    /// Marks the live resources as the baseline for out-of-memory errors, which then show how much each call site has
    /// grown since. A program that works in steps calls this once, after the first few steps.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::{Context, DeviceBuffer, Error};
    ///
    /// let context = Context::builder().memory_limit(1 << 20).build()?;
    /// let mut kept = Vec::new();
    /// let error = loop {
    ///     match DeviceBuffer::<u8>::zeroed(&context, 100_000) {
    ///         Ok(buffer) => kept.push(buffer), // the leak
    ///         Err(error) => break error,
    ///     }
    ///     if kept.len() == 1 {
    ///         context.mark_oom_baseline();
    ///     }
    /// };
    /// let Error::OutOfMemory(why) = error else { panic!("{error}") };
    /// assert_eq!(why.call_sites[0].growth, Some(900_000));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn mark_oom_baseline(&self) {
        self.state().registry.mark_baseline();
    }

    /// Registers a callback that runs when an allocation in this context is out of memory, so that a cache can free
    /// memory. It is passed the number of bytes requested; afterwards the allocation is retried.
    ///
    /// It also runs if there is too little memory to create a stream, an event, a module or a memory pool, or to launch a
    /// kernel. Only the driver knows how many bytes that needs: the callback is passed `u64::MAX`.
    ///
    /// It runs on the allocating thread. The callbacks of a context run on one thread at a time: another thread that is out
    /// of memory meanwhile waits for them and retries its allocation before it calls them in turn. So allocations in a
    /// callback never call it again, whichever thread makes them. But a callback that waits for allocations of *other*
    /// threads may slow them down: if these are out of memory too, each of the threads waits once, for
    /// [`OomPolicy::wait_at_most`](crate::oom::OomPolicy::wait_at_most), and then goes on without callbacks.
    ///
    /// A panic in the callback unwinds through the allocation. **It must not block on a lock that is held while
    /// allocating**, which would deadlock: use `try_lock`.
    ///
    /// Callbacks are called in the order of registration, until the returned guard or this `Context` is dropped. (A
    /// callback that is running on another thread completes, and is dropped afterwards.) So a context that stays open
    /// for its resources has no callbacks: guards that they own would keep it open forever. [`close`](Self::close) waits
    /// up to one second for a running callback, so that it can drop guards; it does not wait longer, because the callback
    /// may wait for the closing thread. Guards that the callback still holds are then reported as leaked, and the retried
    /// allocation fails with [`Error::ContextClosed`].
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
    /// let buffer = DeviceBuffer::<u8>::zeroed(&context, 1 << 20)?; // the callback drops the cached buffer
    /// assert!(cache.lock().unwrap().is_none());
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn release_on_oom(
        &self,
        callback: impl Fn(u64) + Send + Sync + 'static,
    ) -> ReleaseCallback {
        ReleaseCallback::register(self.state(), Arc::new(callback))
    }

    /// Changes the recording level of resources that are created from now on.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::{Context, DeviceBuffer, TrackingLevel};
    ///
    /// let context = Context::new(0)?;
    /// context.set_level(TrackingLevel::Stacks); // for the part of the program that leaks
    /// let suspect = DeviceBuffer::<u8>::zeroed(&context, 100)?;
    /// context.set_level(TrackingLevel::Counts);
    /// assert_eq!(context.snapshot().live.len(), 1);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn set_level(&self, level: TrackingLevel) {
        self.state().registry.set_level(level);
    }

    /// Tears the context down now: waits for the device, frees live resources, releases the driver's context, and reports
    /// the resources as leaked. Guards that outlive it turn inert: using them fails with [`Error::ContextClosed`], dropping them
    /// does nothing.
    ///
    /// Only resources with a record are freed. There are no records at [`TrackingLevel::Counts`] and for resources that
    /// [sampling](crate::report::ReportSettings::sample) skipped, and nothing is freed with
    /// [`free_leaks(false)`](ContextBuilder::free_leaks). Such memory is lost until the driver's context is destroyed (a
    /// primary context may have other holders), stream-ordered memory until the process exits.
    ///
    /// Inside a host function of a stream the driver permits no calls: this fails with `CUDA_ERROR_NOT_PERMITTED`, and
    /// the context is torn down later, as if it had been dropped.
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
    /// The first driver error: of earlier asynchronous work, of a free, or of the release. Teardown continues after an
    /// error, and the report lists every failed free, including those of earlier drops.
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
        // They may own guards, which would keep the context open forever.
        state.drop_callbacks();
        drop(self.default.take());
        if Arc::strong_count(&self.open) > 1 {
            self.state().note_dropped();
        }
    }
}
