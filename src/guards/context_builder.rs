//! How a context is made.

use std::sync::atomic::{AtomicU64, Ordering};

use cuguard_driver::result::{self, CallError, context, device};
use cuguard_driver::sys::CUresult;

use crate::core::{
    Budget, ContextConfig, ContextState, OomPolicy, Source, deferred, open_contexts,
};
use crate::error::{DriverError, Error, Result};
use crate::exit;
use crate::guards::Context;
use crate::recovery;
use cuguard_registry::{Level, Registry};
use cuguard_report::ReportSettings;

/// How a [`Context`] is to be; see [`Context::builder`].
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, ContextBuilder, DeviceBuffer};
///
/// /// For a program that shares its device with others.
/// fn modest() -> ContextBuilder {
///     Context::builder().memory_limit(1 << 20)
/// }
///
/// let context = modest().build()?;
/// assert!(DeviceBuffer::<u8>::zeroed(&context, 2 << 20).is_err());
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct ContextBuilder {
    device: u32,
    source: Source,
    level: Option<Level>,
    report: Option<ReportSettings>,
    free_leaks: Option<bool>,
    memory_limit: Option<u64>,
    oom_policy: OomPolicy,
}

impl Default for ContextBuilder {
    fn default() -> Self {
        Self {
            device: 0,
            source: Source::Primary,
            level: None,
            report: None,
            free_leaks: None,
            memory_limit: None,
            oom_policy: OomPolicy::new(),
        }
    }
}

impl ContextBuilder {
    /// The device, numbered from 0. By default the first.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// let context = cuguard::Context::builder().device(0).build()?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn device(mut self, ordinal: u32) -> Self {
        self.device = ordinal;
        self
    }

    /// A context of its own instead of the device's primary one. It costs device memory once more,
    /// and libraries that work on the primary context do not see what is made in it.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::Context;
    ///
    /// let (shared, own) = (Context::new(0)?, Context::builder().dedicated().build()?);
    /// assert_ne!(shared.as_raw(), own.as_raw());
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn dedicated(mut self) -> Self {
        self.source = Source::Own;
        self
    }

    /// What is recorded of everything that is made: by default [`Level::Stacks`] where there is a
    /// report, else [`Level::Sites`]. `LEAK_REPORT=level=…` wins over it.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::{Context, DeviceBuffer, Level};
    ///
    /// let context = Context::builder().level(Level::Counts).build()?;
    /// let buffer = DeviceBuffer::<u8>::zeroed(&context, 100)?;
    /// let snapshot = context.snapshot();
    /// assert!(snapshot.live.is_empty() && snapshot.unrecorded.len() == 1);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn level(mut self, level: Level) -> Self {
        self.level = Some(level);
        self
    }

    /// What is reported at the end, and where. What `LEAK_REPORT` names wins over it; see
    /// [`ReportSettings`].
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::Context;
    /// use cuguard::report::ReportSettings;
    ///
    /// // On standard error, unless the environment says otherwise.
    /// let context = Context::builder().report(ReportSettings::text().max(10)).build()?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn report(mut self, settings: ReportSettings) -> Self {
        self.report = Some(settings);
        self
    }

    /// Whether teardown frees what was forgotten. By default it does; `LEAK_REPORT=free_leaks=…` wins over
    /// this. Without, other tools that look for leaks see them too.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::{Context, DeviceBuffer};
    ///
    /// let others = Context::new(0)?; // keeps the device's primary context alive
    /// let context = Context::builder().free_leaks(false).build()?;
    /// std::mem::forget(DeviceBuffer::<u8>::zeroed(&context, 8 << 20)?);
    /// let before = others.memory()?.free;
    /// context.close()?;
    /// assert_eq!(others.memory()?.free, before);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn free_leaks(mut self, free_leaks: bool) -> Self {
        self.free_leaks = Some(free_leaks);
        self
    }

    /// A budget: the guards of this context hold at most so many bytes of device memory, managed
    /// memory and stream-ordered memory together, as they were asked for. More is refused with
    /// [`Error::OutOfMemory`], as if the device had no more. By default there is none. What was given
    /// away by `into_raw` does not count.
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

    /// What is tried before an allocation fails, and what its error finds out. By default all that
    /// [`OomPolicy::new`] says.
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

    /// Makes the context.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::{Context, Error};
    ///
    /// let context = Context::builder().build()?;
    /// assert_eq!(context.device(), 0);
    /// let missing = Context::builder().device(99).build();
    /// assert!(matches!(missing, Err(Error::NoSuchDevice { ordinal: 99, .. })));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Context::new`].
    pub fn build(self) -> Result<Context> {
        const OPERATION: &str = "Context::new";
        let failed = |CallError { function, code }| {
            Error::Driver(DriverError {
                operation: OPERATION,
                function,
                code,
                bytes: None,
                device: Some(self.device),
            })
        };
        // A context that waits to be torn down may hold what this one needs.
        deferred::run();
        let _making = open_contexts::enter_process(OPERATION)?;
        cuguard_driver::load()?;
        result::init().map_err(failed)?;
        let count = device::count().map_err(failed)?;
        if self.device >= count {
            return Err(Error::NoSuchDevice {
                operation: OPERATION,
                ordinal: self.device,
                count,
            });
        }
        let device = self.device as i32;
        let mut name = [0; 256];
        let name = device::name(device, &mut name)
            .map_err(failed)?
            .to_string_lossy();

        // What the environment names wins over the program.
        let environment = ReportSettings::from_env();
        let report = ReportSettings::of_context(self.report);
        let level = environment.named_level().or(self.level);
        let level = level.or(report.wanted_level()).unwrap_or_default();
        let registry = Registry::new(level, report.wanted_depth()).sampling(report.wanted_sample());
        let free_leaks = environment.wanted_free_leaks().or(self.free_leaks);
        let free_leaks = free_leaks.or(report.wanted_free_leaks()).unwrap_or(true);
        let context = match self.source {
            Source::Primary => device::primary_ctx_retain(device),
            // Creating makes it current, which nobody asked for.
            Source::Own => context::create(0, device).inspect(|_| {
                let _ = context::pop_current();
            }),
        };
        let context = context.map_err(|error| match error.code {
            CUresult::OUT_OF_MEMORY => {
                recovery::context_refused(OPERATION, self.device, &name, error)
            }
            _ => failed(error),
        })?;
        exit::install();
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let state = ContextState::new(ContextConfig {
            context,
            device: self.device,
            device_name: name.into_owned(),
            source: self.source,
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            registry,
            report,
            free_leaks,
            budget: Budget::new(self.memory_limit),
            oom_policy: self.oom_policy,
        });
        Ok(Context::of(state))
    }
}
