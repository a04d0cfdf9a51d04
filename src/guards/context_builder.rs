//! Configuration and creation of a context.

use std::sync::atomic::{AtomicU64, Ordering};

use cuguard_driver::result::{self, context, device};
use cuguard_driver::sys::{CUcontext, CUresult, ctx_flags};

use crate::core::{Budget, ContextConfig, OomPolicy, PoolList, Source, deferred, open_contexts};
use crate::error::{Error, Result};
use crate::exit;
use crate::guards::device::failed;
use crate::guards::pool_builder::check_device;
use crate::guards::{Context, PoolBuilder, Schedule};
use crate::live;
use crate::recovery;
use cuguard_registry::{Registry, TrackingLevel};
use cuguard_report::ReportSettings;

/// Configures a [`Context`]; see [`Context::builder`].
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::context::ContextBuilder;
/// use cuguard::{Context, DeviceBuffer};
///
/// /// For a program that shares its device with other programs.
/// fn limited() -> ContextBuilder {
///     Context::builder().memory_limit(1 << 20)
/// }
///
/// let context = limited().build()?;
/// assert!(DeviceBuffer::<u8>::zeroed(&context, 2 << 20).is_err());
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until `build`"]
pub struct ContextBuilder {
    device: u32,
    dedicated: bool,
    schedule: Option<Schedule>,
    level: Option<TrackingLevel>,
    report: Option<ReportSettings>,
    free_leaks: Option<bool>,
    memory_limit: Option<u64>,
    oom_policy: OomPolicy,
    pool: Option<PoolBuilder>,
}

impl ContextBuilder {
    /// Selects the device, numbered from 0. The default is 0.
    pub fn device(mut self, ordinal: u32) -> Self {
        self.device = ordinal;
        self
    }

    /// Creates a new driver context instead of retaining the device's primary context. It needs additional device
    /// memory, and libraries that use the primary context cannot access its resources.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::Context;
    ///
    /// let (primary, dedicated) = (Context::new(0)?, Context::builder().dedicated().build()?);
    /// assert_ne!(primary.as_raw(), dedicated.as_raw());
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[doc(alias = "cuCtxCreate")]
    pub fn dedicated(mut self) -> Self {
        self.dedicated = true;
        self
    }

    /// Sets how threads wait for the device. The default is [`Schedule::Auto`], and for a primary context what other code
    /// has set: this changes it for them too (`cuDevicePrimaryCtxSetFlags`), and keeps the other flags.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::context::Schedule;
    /// use cuguard::Context;
    ///
    /// let context = Context::builder().schedule(Schedule::Yield).build()?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = Some(schedule);
        self
    }

    /// Sets what is recorded for each resource. The default is [`TrackingLevel::Stacks`] if there is a report, else
    /// [`TrackingLevel::Sites`]. `LEAK_REPORT=level=…` takes precedence.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::{Context, DeviceBuffer, TrackingLevel};
    ///
    /// let context = Context::builder().level(TrackingLevel::Counts).build()?;
    /// let buffer = DeviceBuffer::<u8>::zeroed(&context, 100)?;
    /// let snapshot = context.snapshot();
    /// assert!(snapshot.live.is_empty() && snapshot.unrecorded.len() == 1);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn level(mut self, level: TrackingLevel) -> Self {
        self.level = Some(level);
        self
    }

    /// Sets format and destination of the leak report. Settings in `LEAK_REPORT` take precedence; see
    /// [`ReportSettings`].
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::Context;
    /// use cuguard::report::ReportSettings;
    ///
    /// // To stderr, unless the environment selects another destination.
    /// let context = Context::builder().report(ReportSettings::text().max(10)).build()?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn report(mut self, settings: ReportSettings) -> Self {
        self.report = Some(settings);
        self
    }

    /// Sets whether teardown frees leaked resources. The default is `true`; `LEAK_REPORT=free_leaks=…` takes precedence.
    /// With `false`, other leak checkers see the leaks too.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::{Context, DeviceBuffer};
    ///
    /// let other = Context::new(0)?; // keeps the device's primary context alive
    /// let context = Context::builder().free_leaks(false).build()?;
    /// std::mem::forget(DeviceBuffer::<u8>::zeroed(&context, 8 << 20)?);
    /// let before = other.memory()?.free;
    /// context.close()?;
    /// assert_eq!(other.memory()?.free, before);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn free_leaks(mut self, free_leaks: bool) -> Self {
        self.free_leaks = Some(free_leaks);
        self
    }

    /// Sets a budget in bytes for device, managed and stream-ordered memory together, counted in requested sizes. An
    /// allocation beyond it fails with [`Error::OutOfMemory`], as if the device were full. The default is no budget.
    /// Memory released by `into_raw` does not count.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::{Context, DeviceBuffer};
    ///
    /// let context = Context::builder().memory_limit(1 << 20).build()?;
    /// let half = DeviceBuffer::<u8>::zeroed(&context, 1 << 19)?;
    /// assert!(DeviceBuffer::<u8>::zeroed(&context, (1 << 19) + 1).is_err());
    /// drop(half);
    /// assert!(DeviceBuffer::<u8>::zeroed(&context, 1 << 20).is_ok());
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory_limit = Some(bytes);
        self
    }

    /// Sets which recovery steps run before an allocation fails, and what its error diagnoses. The default is
    /// [`OomPolicy::new`].
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::{Context, DeviceBuffer};
    /// use cuguard::oom::OomPolicy;
    ///
    /// let settings = OomPolicy::new().callbacks(false);
    /// let context = Context::builder().memory_limit(1000).oom_policy(settings).build()?;
    /// let _callback = context.release_on_oom(|_bytes| unreachable!("not called"));
    /// assert!(DeviceBuffer::<u8>::zeroed(&context, 2000).is_err());
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn oom_policy(mut self, settings: OomPolicy) -> Self {
        self.oom_policy = settings;
        self
    }

    /// Makes every [`DeviceBuffer`](crate::DeviceBuffer) and [`DeviceBox`](crate::DeviceBox) of the context come from a
    /// [`Pool`](crate::Pool): also those that are allocated from a stream, and scratch memory of scopes. Buffers that are
    /// allocated from the context are freed in the order of the default stream. The default is no pool.
    ///
    /// This pool has no guard: its figures are in a [snapshot](crate::Context::snapshot), it releases idle memory by itself, and
    /// merges pages when memory runs short. To call [`Pool::compact`](crate::Pool::compact), `trim` or `pin`, create a
    /// [`Pool`](crate::Pool) and allocate from it.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::{Context, DeviceBuffer, ResourceKind, Pool};
    ///
    /// let context = Context::builder().pool(Pool::builder().limit(1 << 30)).build()?;
    /// let buffer = DeviceBuffer::<u8>::zeroed(&context, 1000)?;
    /// assert_eq!(context.totals(ResourceKind::Pooled).bytes, 1000);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn pool(mut self, pool: PoolBuilder) -> Self {
        self.pool = Some(pool);
        self
    }

    /// Creates or retains the context.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::{Context, Error};
    ///
    /// let context = Context::builder().build()?;
    /// assert_eq!(context.device().ordinal(), 0);
    /// let missing = Context::builder().device(99).build();
    /// assert!(matches!(missing, Err(Error::NoSuchDevice { ordinal: 99, .. })));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Context::new`].
    pub fn build(self) -> Result<Context> {
        self.build_by("ContextBuilder::build")
    }

    /// `operation` is the function that the caller called.
    pub(super) fn build_by(self, operation: &'static str) -> Result<Context> {
        // A deferred teardown may release memory that this context needs.
        deferred::run();
        let _opening = open_contexts::enter_process(operation)?;
        cuguard_driver::load()?;
        let failed = || failed(operation, Some(self.device));
        result::init().map_err(failed())?;
        let count = device::count().map_err(failed())?;
        if self.device >= count {
            return Err(Error::NoSuchDevice {
                operation,
                ordinal: self.device,
                count,
            });
        }
        let device = self.device as i32;
        let name = name(operation, self.device)?;
        let (source, context) = if self.dedicated {
            // `cuCtxCreate` makes the context current, which is undone here.
            let flags = self.schedule.unwrap_or_default() as u32;
            let created = context::create(flags, device).inspect(|_| {
                let _ = context::pop_current();
            });
            (Source::Own, created)
        } else {
            if let Some(schedule) = self.schedule {
                set_primary_schedule(device, schedule).map_err(failed())?;
            }
            (Source::Primary, device::primary_ctx_retain(device))
        };
        let context = context.map_err(|error| match error.code {
            CUresult::OUT_OF_MEMORY => {
                recovery::context_refused(operation, self.device, &name, error)
            }
            _ => failed()(error),
        })?;
        let is_primary = source == Source::Primary;
        self.finish(operation, context, name, source, is_primary, Ok(()))
    }

    /// As [`build`](Self::build), for a context of other code; see [`Context::from_raw`]. The settings of
    /// [`device`](Self::device), [`dedicated`](Self::dedicated) and [`schedule`](Self::schedule) do not apply.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # cuguard::Device::count()?;
    /// use cuguard::driver::{api, sys::CUcontext};
    /// use cuguard::{Context, TrackingLevel};
    ///
    /// let mut handle = CUcontext::NULL;
    /// // SAFETY: `handle` is valid for writes.
    /// assert!(unsafe { api::cuCtxCreate_v2(&mut handle, 0, 0) }.is_success());
    /// // SAFETY: created above, and destroyed by nothing else.
    /// let context = unsafe { Context::builder().level(TrackingLevel::Counts).build_from_raw(handle)? };
    /// context.close()?; // destroys it
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// As [`Context::from_raw`].
    ///
    /// # Errors
    ///
    /// As [`Context::from_raw`].
    pub unsafe fn build_from_raw(self, handle: CUcontext) -> Result<Context> {
        // SAFETY: as the caller ensures.
        unsafe { self.build_with("ContextBuilder::build_from_raw", handle, true) }
    }

    /// As [`build`](Self::build), for a context of other code, which is never released; see [`Context::borrow_raw`]. The
    /// settings of [`device`](Self::device), [`dedicated`](Self::dedicated) and [`schedule`](Self::schedule) do not apply.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::report::ReportSettings;
    /// use cuguard::{Context, DeviceBuffer};
    ///
    /// # let owner = Context::builder().dedicated().build()?;
    /// # let handle = owner.as_raw();
    /// let settings = Context::builder().memory_limit(1 << 20).report(ReportSettings::text());
    /// // SAFETY: the context stays alive until this one is closed.
    /// let context = unsafe { settings.build_borrowed(handle)? };
    /// assert!(DeviceBuffer::<u8>::zeroed(&context, 2 << 20).is_err());
    /// context.close()?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// As [`Context::borrow_raw`].
    ///
    /// # Errors
    ///
    /// As [`Context::borrow_raw`].
    pub unsafe fn build_borrowed(self, handle: CUcontext) -> Result<Context> {
        // SAFETY: as the caller ensures.
        unsafe { self.build_with("ContextBuilder::build_borrowed", handle, false) }
    }

    /// `operation` is the function that the caller called.
    ///
    /// # Safety
    ///
    /// The context is alive, and stays alive until this one is torn down. With `own`, this takes ownership.
    pub(super) unsafe fn build_with(
        mut self,
        operation: &'static str,
        handle: CUcontext,
        own: bool,
    ) -> Result<Context> {
        if handle.is_null() {
            return Err(Error::NullHandle {
                operation,
                argument: "the context",
                reason: "is a null handle",
            });
        }
        deferred::run();
        let _opening = open_contexts::enter_process(operation)?;
        cuguard_driver::load()?;
        result::init().map_err(failed(operation, None))?;
        // SAFETY: the context is alive, as the caller ensures.
        unsafe { context::push_current(handle) }.map_err(failed(operation, None))?;
        let device = context::device();
        let _ = context::pop_current();
        let device = device.map_err(failed(operation, None))?;
        self.device = u32::try_from(device).unwrap_or(0);
        let name = name(operation, self.device)?;
        let (is_primary, released) =
            is_primary(handle, device).map_err(failed(operation, Some(self.device)))?;
        let source = match (own, is_primary) {
            (false, _) => Source::Borrowed,
            (true, true) => Source::Primary,
            (true, false) => Source::Own,
        };
        self.finish(operation, handle, name, source, is_primary, released)
    }

    /// Creates the `Context` of a driver's context. Where the driver refused to release the reference to the primary context
    /// that [`is_primary`] retained, `released` says why, and teardown releases it.
    fn finish(
        self,
        operation: &'static str,
        context: CUcontext,
        device_name: String,
        source: Source,
        is_primary: bool,
        released: result::Result,
    ) -> Result<Context> {
        // The environment takes precedence over the program.
        let environment = ReportSettings::from_env();
        let report = ReportSettings::of_context(self.report);
        let level = environment.named_level().or(self.level);
        let level = level.or(report.wanted_level()).unwrap_or_default();
        cuguard_report::start_recording(&report);
        cuguard_report::note_crate();
        if level == TrackingLevel::Counts {
            cuguard_report::warn_of_counts();
        }
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let registry = Registry::new(level, report.wanted_depth())
            .sampling(report.wanted_sample())
            .in_context(u32::try_from(number).unwrap_or(0));
        let free_leaks = environment.wanted_free_leaks().or(self.free_leaks);
        let free_leaks = free_leaks.or(report.wanted_free_leaks()).unwrap_or(true);
        exit::install();
        live::start();
        let state = open_contexts::open(ContextConfig {
            context,
            device: self.device,
            device_name,
            source,
            is_primary,
            keeps_primary: released.is_err(),
            number,
            registry,
            report,
            pools_of_cuguard: Box::new(PoolList::default()),
            has_pool: self.pool.is_some(),
            free_leaks,
            budget: Budget::new(self.memory_limit),
            oom_policy: self.oom_policy,
        });
        state.note_if_broken(operation, released);
        let context = Context::from_state(state);
        if let Some(pool) = self.pool {
            check_device(operation, context.state())?;
            let pool = pool.create(context.state());
            context.state().pools_of_cuguard().set_of_context(pool);
        }
        Ok(context)
    }
}

fn name(operation: &'static str, device: u32) -> Result<String> {
    let mut name = [0; 256];
    let name = device::name(device as i32, &mut name).map_err(failed(operation, Some(device)))?;
    Ok(name.to_string_lossy().into_owned())
}

/// `cuDevicePrimaryCtxSetFlags` replaces all flags, so those of other code are read and set again. `MAP_HOST` is always
/// on: the driver reports it, and rejects it as an argument.
fn set_primary_schedule(device: i32, schedule: Schedule) -> result::Result {
    let flags = device::primary_ctx_flags(device)?;
    let others = flags & !(ctx_flags::SCHED_MASK | ctx_flags::MAP_HOST);
    device::primary_ctx_set_flags(device, others | schedule as u32)
}

/// Whether a context is the primary context of its device. The caller ensures that it is alive: so a primary context
/// that is not active is another one, and one that is active is retained and released here without any effect. Also returns
/// whether it was released: where not, the reference is to be released later.
#[expect(
    clippy::disallowed_methods,
    reason = "releases what is retained in the line above"
)]
fn is_primary(handle: CUcontext, device: i32) -> result::Result<(bool, result::Result)> {
    if !device::primary_ctx_is_active(device)? {
        return Ok((false, Ok(())));
    }
    let primary = device::primary_ctx_retain(device)?;
    // SAFETY: retained above, and not used afterwards.
    let released = unsafe { device::primary_ctx_release(device) };
    Ok((primary == handle, released))
}

impl Context {
    /// Retains the primary context of a device. Devices are numbered from 0.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// let context = cuguard::Context::new(0)?;
    /// assert_eq!(context.device().ordinal(), 0);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Load`] if there is no driver, [`Error::NoSuchDevice`], [`Error::OutOfMemory`], [`Error::ProcessEnding`],
    /// or any other driver error.
    pub fn new(ordinal: u32) -> Result<Self> {
        Self::builder().device(ordinal).build_by("Context::new")
    }

    /// Configures a context; see [`ContextBuilder`].
    pub fn builder() -> ContextBuilder {
        ContextBuilder::default()
    }
}
