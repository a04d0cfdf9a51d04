//! The context: the one owner of the driver's context, and the place where leaks are told.

use std::ffi::CStr;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cuguard_driver::api;
use cuguard_driver::sys::{CUcontext, CUresult};

use crate::custody::{Custody, Parts, Source, log_error};
use crate::error::{DriverError, Error, Result};
use crate::exit;
use crate::registry::{Kind, Level, Occasion, Registry, Snapshot, Totals};
use crate::report::ReportSettings;

/// A CUDA context, and custody of all that is made in it.
///
/// It is made from the device's primary context unless an own one is asked for. Everything else
/// (buffers, streams, events, modules) is made with a reference to it, works on any thread, and
/// finds this context by itself: nothing here depends on which context is current, and no thread's
/// current context is changed.
///
/// There is one owner: a `Context` cannot be cloned. Share it by reference or in an
/// [`Arc`]. When it goes, by [`close`](Self::close) or by drop, it waits for the device, takes down
/// what is still there, frees it (not at
/// [`Level::Counts`], which keeps no addresses, nor what no [sample](crate::ReportSettings::sample)
/// met, nor without [`reclaim`](ContextBuilder::reclaim)), gives the driver's context back, and
/// reports (see the [manual](crate#leak_report)). Guards that are still around turn inert: to use them is an
/// [`Error::ContextClosed`], to drop them does nothing.
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
    custody: Arc<Custody>,
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
    /// let context = Context::builder().device(0).own().level(Level::Stacks).build()?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn builder() -> ContextBuilder {
        ContextBuilder::default()
    }

    pub(crate) fn custody(&self) -> &Arc<Custody> {
        &self.custody
    }

    /// The device's number.
    #[must_use]
    pub fn device(&self) -> u32 {
        self.custody.device
    }

    /// The device's name.
    #[must_use]
    pub fn device_name(&self) -> &str {
        &self.custody.device_name
    }

    /// The driver's handle, for code that calls the driver itself. It is valid until this context
    /// goes.
    #[must_use]
    pub fn as_raw(&self) -> CUcontext {
        self.custody.context
    }

    /// The device's memory, as the driver tells it.
    ///
    /// # Errors
    ///
    /// What the driver says.
    pub fn memory(&self) -> Result<MemoryInfo> {
        let entered = self.custody.enter("Context::memory")?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both variables can be written to.
        let code = unsafe { api::cuMemGetInfo_v2(&mut free, &mut total) };
        entered.check("cuMemGetInfo", code)?;
        Ok(MemoryInfo {
            free: free as u64,
            total: total as u64,
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
        let entered = self.custody.enter("Context::synchronize")?;
        // SAFETY: the context is current.
        entered.check("cuCtxSynchronize", unsafe { api::cuCtxSynchronize() })
    }

    /// Makes this context current on the calling thread until the answer goes, for `cust` and
    /// other code that depends on it. Nothing in this crate does.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// let context = cuguard::Context::new(0)?;
    /// let bound = context.bind()?;
    /// let buffer = cust::memory::DeviceBuffer::from_slice(&[1, 2, 3])?; // not in custody
    /// drop(buffer);
    /// drop(bound);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// What the driver says.
    pub fn bind(&self) -> Result<Current<'_>> {
        const OPERATION: &str = "Context::bind";
        let Some(_inside) = self.custody.pass_in() else {
            // It cannot be closed, as it is borrowed.
            return Err(Error::ProcessEnding {
                operation: OPERATION,
            });
        };
        // SAFETY: the context is alive.
        let code = unsafe { api::cuCtxPushCurrent_v2(self.custody.context) };
        self.custody
            .check(OPERATION, "cuCtxPushCurrent", code, None)?;
        Ok(Current {
            context: self,
            _this_thread: PhantomData,
        })
    }

    /// The bytes of memory that guards of this context hold now, of all kinds.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        self.custody.registry.live().bytes
    }

    /// How many things guards of this context hold now: memory, streams, events, modules, pools.
    #[must_use]
    pub fn live_count(&self) -> u64 {
        self.custody.registry.live().count
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
        self.custody.registry.totals(kind)
    }

    /// All that is alive now, with the places that made it, as plain data.
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
        self.custody.snapshot(Occasion::Asked)
    }

    /// Changes what is recorded of what is made from now on.
    pub fn set_level(&self, level: Level) {
        self.custody.registry.set_level(level);
    }

    /// Tears the context down and tells whether the driver agreed: the first thing that it refused
    /// is the error, and the rest was done all the same. Drop does the same, and logs that error.
    ///
    /// # Errors
    ///
    /// What the driver said first: work that failed earlier, a free that it refused, the release.
    pub fn close(self) -> Result<()> {
        self.custody.tear_down("Context::close", Occasion::Close)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if let Err(error) = self.custody.tear_down("Context::drop", Occasion::Drop) {
            log_error(&error);
        }
    }
}

/// The context is current on this thread until this goes; see [`Context::bind`]. Where several are
/// kept at once, they may go in any order; one that is forgotten leaves its context on the thread's
/// stack of contexts.
#[derive(Debug)]
#[must_use = "the context is current only as long as this is kept"]
pub struct Current<'a> {
    context: &'a Context,
    /// The stack of current contexts is a thread's own.
    _this_thread: PhantomData<*const ()>,
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        let Some(_inside) = self.context.custody.pass_in() else {
            return;
        };
        // The driver keeps a stack of contexts for each thread. Others that were put on it since
        // stay there.
        let ours = self.context.custody.context;
        let mut others = Vec::new();
        loop {
            let mut popped = CUcontext::NULL;
            // SAFETY: the variable can be written to.
            let code = unsafe { api::cuCtxPopCurrent_v2(&mut popped) };
            if !code.is_success() || popped == ours {
                break;
            }
            others.push(popped);
        }
        for other in others.into_iter().rev() {
            // SAFETY: it was on the stack a moment ago.
            let _ = unsafe { api::cuCtxPushCurrent_v2(other) };
        }
    }
}

/// How a [`Context`] is to be; see [`Context::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until `build`"]
pub struct ContextBuilder {
    device: u32,
    source: Source,
    level: Option<Level>,
    report: Option<ReportSettings>,
    reclaim: Option<bool>,
}

impl Default for ContextBuilder {
    fn default() -> Self {
        Self {
            device: 0,
            source: Source::Primary,
            level: None,
            report: None,
            reclaim: None,
        }
    }
}

impl ContextBuilder {
    /// The device, numbered from 0. By default the first.
    pub fn device(mut self, ordinal: u32) -> Self {
        self.device = ordinal;
        self
    }

    /// A context of its own instead of the device's primary one. It costs device memory once more,
    /// and libraries that work on the primary context do not see what is made in it.
    pub fn own(mut self) -> Self {
        self.source = Source::Own;
        self
    }

    /// What is recorded of everything that is made. By default what `LEAK_REPORT` says, else
    /// [`Level::Sites`].
    pub fn level(mut self, level: Level) -> Self {
        self.level = Some(level);
        self
    }

    /// What is reported at the end, and where. By default what `LEAK_REPORT` says.
    pub fn report(mut self, settings: ReportSettings) -> Self {
        self.report = Some(settings);
        self
    }

    /// Whether teardown frees what was forgotten. By default what `LEAK_REPORT` says (`reclaim=no`),
    /// else it does. Without, other tools that look for leaks see them too.
    pub fn reclaim(mut self, reclaim: bool) -> Self {
        self.reclaim = Some(reclaim);
        self
    }

    /// Makes the context.
    ///
    /// # Errors
    ///
    /// As [`Context::new`].
    pub fn build(self) -> Result<Context> {
        const OPERATION: &str = "Context::new";
        let check = |function, code: CUresult| match code {
            CUresult::SUCCESS => Ok(()),
            code => Err(Error::Driver(DriverError {
                operation: OPERATION,
                function,
                code,
                bytes: None,
                device: Some(self.device),
            })),
        };
        let _making = exit::making(OPERATION)?;
        cuguard_driver::load()?;
        // SAFETY: may be called at any time, and again.
        check("cuInit", unsafe { api::cuInit(0) })?;
        let mut count = 0;
        // SAFETY: the variable can be written to.
        check("cuDeviceGetCount", unsafe {
            api::cuDeviceGetCount(&mut count)
        })?;
        let count = count.max(0) as u32;
        if self.device >= count {
            return Err(Error::NoSuchDevice {
                operation: OPERATION,
                ordinal: self.device,
                count,
            });
        }
        let device = self.device as i32;
        let mut name = [0; 256];
        // SAFETY: the array has as many bytes as is said.
        check("cuDeviceGetName", unsafe {
            api::cuDeviceGetName(name.as_mut_ptr(), name.len() as i32, device)
        })?;
        let name = name.map(|c| c as u8);
        let name = CStr::from_bytes_until_nul(&name)
            .unwrap_or_default()
            .to_string_lossy();

        let report = self
            .report
            .unwrap_or_else(|| ReportSettings::from_env().clone());
        let level = self.level.or(report.wanted_level()).unwrap_or_default();
        let registry = Registry::new(level, report.wanted_depth()).sampling(report.wanted_sample());
        let reclaim = self.reclaim.or(report.wanted_reclaim()).unwrap_or(true);
        let mut context = CUcontext::NULL;
        match self.source {
            Source::Primary => {
                // SAFETY: the variable can be written to; the device exists.
                let code = unsafe { api::cuDevicePrimaryCtxRetain(&mut context, device) };
                check("cuDevicePrimaryCtxRetain", code)?;
            }
            Source::Own => {
                // SAFETY: as above.
                let code = unsafe { api::cuCtxCreate_v2(&mut context, 0, device) };
                check("cuCtxCreate", code)?;
                // Creating makes it current, which nobody asked for. SAFETY: takes that away.
                let _ = unsafe { api::cuCtxPopCurrent_v2(std::ptr::null_mut()) };
            }
        }
        static NUMBER: AtomicU64 = AtomicU64::new(1);
        let custody = Custody::new(Parts {
            context,
            device: self.device,
            device_name: name.into_owned(),
            source: self.source,
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            registry,
            report,
            reclaim,
        });
        Ok(Context { custody })
    }
}
