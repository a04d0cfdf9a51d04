//! The numbers behind the diagnosis: what is known when an allocation fails.

use cuguard_registry::{
    Amount, ContextInfo, PageUse, ResourceKind, Site, SiteUsage, TrackingLevel,
};

use super::others::{GraphMemoryUse, OtherContext, PoolUse, Processes};

/// Why an allocation failed: everything that is known about it, as plain data.
///
/// It is in `Error::OutOfMemory`. [`Display`](std::fmt::Display) is one line, [`to_text`](Self::to_text) the
/// whole report, [`to_json`](Self::to_json) the same as JSON; [`causes`](Self::causes) is the diagnosis.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, DeviceBuffer, Error};
/// use cuguard::oom::Cause;
///
/// let context = Context::new(0)?;
/// let Err(Error::OutOfMemory(why)) = DeviceBuffer::<u8>::zeroed(&context, 1 << 50) else {
///     panic!("no device has that much");
/// };
/// assert_eq!(why.request.bytes, Some(1 << 50));
/// assert!(matches!(why.causes()[0], Cause::LargerThanDevice { .. }));
/// println!("{}", why.to_text());
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutOfMemory {
    /// The request that failed.
    pub request: FailedRequest,
    /// In which context.
    pub info: ContextInfo,
    /// The device's memory, where that is known.
    pub total: Option<u64>,
    /// The device's free memory, where that is known. It need not be contiguous.
    pub free: Option<u64>,
    /// The largest block that can be allocated, with `OomPolicy::probe_largest`.
    pub largest: Option<u64>,
    /// The memory limit of the context, if it has one.
    pub limit: Option<Limit>,
    /// What the context holds of each kind of memory.
    pub usage: Vec<KindUsage>,
    /// What escaped by `into_raw`, by kind. The new owner may have freed it, so it is in no other figure; a
    /// cause names what may be left of it.
    pub escaped: Vec<KindUsage>,
    /// How the context's device memory lies in pages. `None` where not all of it has a record: at
    /// [`TrackingLevel::Counts`], or with samples.
    pub pages: Option<PageUse>,
    /// The call sites that hold most, the largest first, and those that keep most pages.
    pub call_sites: Vec<SiteUsage>,
    /// The device's memory pools: its default one, and those of its contexts in this process.
    pub pools: Vec<PoolUse>,
    /// What graphs have reserved.
    pub graphs: GraphMemoryUse,
    /// How many streams have frees that are not complete or that nothing has waited for: the driver reuses
    /// neither.
    pub busy_streams: u64,
    /// The bytes of these frees, at most. `u64::MAX` where that is not known.
    pub pending_bytes: u64,
    /// Other contexts of this process on the same device.
    pub contexts: Vec<OtherContext>,
    /// The processes that hold memory of the device.
    pub processes: Processes,
    /// The recovery steps before the allocation failed, in order.
    pub recovery: Vec<RecoveryResult>,
    /// The program's settings, so that nothing is advised that is already set.
    pub settings: Settings,
}

/// The request that failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailedRequest {
    /// The function of this crate, such as `DeviceBuffer::zeroed`.
    pub operation: &'static str,
    /// How many bytes; `None` where only the driver knows: for a context, a stream, an event, a module, a
    /// memory pool, a launch.
    pub bytes: Option<u64>,
    /// What was to be allocated; `None` for a context and a launch. [`ResourceKind::GraphMemory`] for the launch of a graph
    /// with scratch memory.
    pub kind: Option<ResourceKind>,
    /// The call site; `None` for a context, and for an audited program.
    pub site: Option<Site>,
    /// The stack trace, for an audited program.
    pub stack: &'static [usize],
    /// The name of the thread.
    pub thread: Option<String>,
    /// The driver's function that failed; `None` where the memory limit refused, and where a graph was not launched
    /// because its scratch memory does not fit.
    pub function: Option<&'static str>,
    /// Its error code.
    pub code: u32,
    /// The name of the code.
    pub code_name: &'static str,
}

impl FailedRequest {
    /// Whether page-locked host memory was to be allocated or registered: no device memory is why that failed.
    ///
    /// ```
    /// let mut request = cuguard::oom::FailedRequest::default();
    /// assert!(!request.is_host_memory());
    /// request.kind = Some(cuguard::ResourceKind::Pinned);
    /// assert!(request.is_host_memory());
    /// ```
    #[must_use]
    pub fn is_host_memory(&self) -> bool {
        self.host_kind().is_some()
    }

    /// The kind, if it is page-locked host memory.
    pub(super) fn host_kind(&self) -> Option<ResourceKind> {
        self.kind.filter(|kind| is_page_locked(*kind))
    }

    /// Whether live memory of a kind may be why it failed.
    ///
    /// ```
    /// use cuguard::ResourceKind;
    ///
    /// let mut request = cuguard::oom::FailedRequest::default();
    /// request.kind = Some(ResourceKind::Pinned);
    /// assert!(request.may_be_why(ResourceKind::Registered) && !request.may_be_why(ResourceKind::Device));
    /// ```
    #[must_use]
    pub fn may_be_why(&self, kind: ResourceKind) -> bool {
        kind.is_memory() && (!self.is_host_memory() || is_page_locked(kind))
    }
}

/// Whether it is page-locked host memory.
pub(super) const fn is_page_locked(kind: ResourceKind) -> bool {
    matches!(
        kind,
        ResourceKind::Pinned | ResourceKind::Registered | ResourceKind::WriteCombined
    )
}

/// A memory limit; see `ContextBuilder::memory_limit` and `PoolBuilder::limit`.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, DeviceBuffer, Error};
///
/// let context = Context::builder().memory_limit(1000).build()?;
/// let Err(Error::OutOfMemory(why)) = DeviceBuffer::<u8>::zeroed(&context, 1001) else {
///     panic!("that is beyond the limit");
/// };
/// assert_eq!(why.limit.unwrap().bytes, 1000);
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// What the context or the pool may hold.
    pub bytes: u64,
    /// What it held at the request.
    pub held: u64,
    /// Whether the limit refused the request.
    pub refused: bool,
    /// Whether it is the limit of a `Pool`, and not of the context; see `PoolBuilder::limit`.
    pub of_pool: bool,
}

/// What a context holds of one kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindUsage {
    /// The kind.
    pub kind: ResourceKind,
    /// How many blocks, and their bytes as requested.
    pub amount: Amount,
}

/// A recovery step, taken before an allocation fails; see `OomPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryStep {
    /// Pools of cuguard release idle memory and merge half-empty pages. Only where the device has such a pool.
    Compact,
    /// The program's callbacks release what they can.
    Callbacks,
    /// Waits for frees on streams.
    Wait,
    /// Trims memory pools.
    Trim,
    /// Pools of cuguard in other processes of the user release idle memory. Only where one of them did.
    OtherProcesses,
}

impl RecoveryStep {
    /// Its name in JSON, which never changes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Compact => "compact",
            Self::Callbacks => "callbacks",
            Self::Wait => "wait",
            Self::Trim => "trim",
            Self::OtherProcesses => "other_processes",
        }
    }
}

/// What a [`RecoveryStep`] achieved.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// # let context = cuguard::Context::new(0)?;
/// use cuguard::{DeviceBuffer, Error};
/// use cuguard::oom::RecoveryStep;
///
/// let Err(Error::OutOfMemory(why)) = DeviceBuffer::<u8>::zeroed(&context, 1 << 50) else {
///     panic!("no device has that much");
/// };
/// assert_eq!(why.recovery[0].step, RecoveryStep::Callbacks);
/// assert!(!why.recovery[0].tried); // none is registered
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryResult {
    /// The step.
    pub step: RecoveryStep,
    /// Whether the policy allows it.
    pub allowed: bool,
    /// Whether there was anything to do, and it was done. The allocation was then retried.
    pub tried: bool,
    /// The bytes by which the device's free memory grew; 0 where that is not known.
    pub freed: u64,
}

/// The program's settings that matter when an allocation fails.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// How much is recorded.
    pub level: TrackingLevel,
    /// One resource in this many is recorded; 0 and 1 are all.
    pub sample: u32,
    /// Whether there is a baseline: `Context::mark_oom_baseline` was called.
    pub has_baseline: bool,
    /// How many callbacks that release memory are registered.
    pub callbacks: u64,
    /// How many devices there are; 0 where that is not known.
    pub devices: u32,
    /// Whether `cuguard run` recorded it: the program does not use the crate, so none of its items is advised.
    pub audited: bool,
}
