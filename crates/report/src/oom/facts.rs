//! The numbers: what is known when memory runs out.

use super::others::{OtherContext, PoolUse, Processes};
use cuguard_registry::{Amount, ContextInfo, Kind, Level, PageUse, Site, SiteUsage};

/// Why memory ran out: everything that is known about it, as plain data.
///
/// It comes with [`Error::OutOfMemory`](crate::Error::OutOfMemory). [`Display`](std::fmt::Display) is
/// one line, [`to_text`](Self::to_text) the whole report, [`to_json`](Self::to_json) the same for
/// programs; [`causes`](Self::causes) is the verdict.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, DeviceBuffer, Error};
/// use cuguard::oom::Cause;
///
/// let context = Context::new(0)?;
/// let Err(Error::OutOfMemory(why)) = DeviceBuffer::<u8>::zeroed(&context, 1 << 50) else {
///     panic!("no device has as much");
/// };
/// assert_eq!(why.asked.bytes, Some(1 << 50));
/// assert!(matches!(why.causes()[0], Cause::LargerThanDevice { .. }));
/// println!("{}", why.to_text());
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutOfMemory {
    /// What was asked for, by whom, and who refused it.
    pub asked: FailedRequest,
    /// In which context.
    pub info: ContextInfo,
    /// All memory of the device, where the driver tells.
    pub total: Option<u64>,
    /// What nobody uses, where the driver tells. It need not be in one piece.
    pub free: Option<u64>,
    /// The largest block that could be had, where that was [asked
    /// for](crate::OomPolicy::probe_largest).
    pub largest: Option<u64>,
    /// The budget of the context, if it has one.
    pub limit: Option<Limit>,
    /// What the context holds, by kind, for kinds of memory of which there is some.
    pub held: Vec<KindUsage>,
    /// What it gave away by `into_raw`, by kind. Whoever has it may have freed it, so it is in no other
    /// figure here; the verdict names what may be left of it.
    pub given_away: Vec<KindUsage>,
    /// How its device memory lies in pages. `None` where not all of it has a record: at
    /// [`Level::Counts`], or with samples.
    pub pages: Option<PageUse>,
    /// The places that hold most of it, the largest first, and those that keep most pages.
    pub holders: Vec<SiteUsage>,
    /// The device's memory pools: its own, and those of its contexts in this process.
    pub pools: Vec<PoolUse>,
    /// How many streams have frees in them that are not done, or that nobody has waited for: the
    /// driver brings neither back.
    pub busy_streams: u64,
    /// At most so many bytes are freed by these. `u64::MAX` where that is not known.
    pub pending_bytes: u64,
    /// Other contexts of this process on the same device, by what their guards hold.
    pub contexts: Vec<OtherContext>,
    /// Which processes hold memory of the device.
    pub processes: Processes,
    /// What was tried before giving up, in order.
    pub attempts: Vec<RecoveryResult>,
    /// What the program has set, for advice that is not in force already.
    pub settings: Settings,
}

/// What was asked for when memory ran out.
///
/// ```
/// assert_eq!(cuguard::oom::FailedRequest::default().bytes, None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FailedRequest {
    /// What was asked of this crate, such as `DeviceBuffer::zeroed`.
    pub operation: &'static str,
    /// How many bytes; `None` where nobody knows but the driver: for a context, a stream, an event, a
    /// module, a memory pool, a launch.
    pub bytes: Option<u64>,
    /// What was to be made; `None` for a context and a launch.
    pub kind: Option<Kind>,
    /// The line of the program; `None` for a context.
    pub site: Option<Site>,
    /// The name of the thread.
    pub thread: Option<String>,
    /// The driver's function that refused it; `None` where the budget did.
    pub function: Option<&'static str>,
    /// What it answered.
    pub code: u32,
    /// The same by name.
    pub code_name: &'static str,
}

/// A budget; see [`ContextBuilder::memory_limit`](crate::ContextBuilder::memory_limit).
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
    /// What the context may hold.
    pub bytes: u64,
    /// What it held when it was asked for more.
    pub held: u64,
    /// Whether it was this that refused.
    pub refused: bool,
}

/// What a context holds of one kind of memory.
///
/// ```
/// let held = cuguard::oom::KindUsage::new(cuguard::Kind::Device, 2, 4096);
/// assert_eq!(held.amount.bytes, 4096);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindUsage {
    /// The kind.
    pub kind: Kind,
    /// How many blocks, and the bytes that were asked for.
    pub amount: Amount,
}

/// One thing that is tried before something fails for want of memory; see [`OomPolicy`](crate::OomPolicy).
///
/// ```
/// assert_eq!(cuguard::oom::RecoveryStep::Trim.name(), "trim");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryStep {
    /// The program's own callbacks give back what they can.
    Callbacks,
    /// Frees that wait for their streams are waited for.
    Wait,
    /// Pools give back what they do not use.
    Trim,
}

/// What became of one [`RecoveryStep`].
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// # let context = cuguard::Context::new(0)?;
/// use cuguard::{DeviceBuffer, Error};
/// use cuguard::oom::RecoveryStep;
///
/// let Err(Error::OutOfMemory(why)) = DeviceBuffer::<u8>::zeroed(&context, 1 << 50) else {
///     panic!("no device has as much");
/// };
/// assert_eq!(why.attempts[0].step, RecoveryStep::Callbacks);
/// assert!(!why.attempts[0].tried); // there were none
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryResult {
    /// What it is.
    pub step: RecoveryStep,
    /// Whether the settings allow it.
    pub allowed: bool,
    /// Whether there was anything to do, and it was done. It was asked for again then.
    pub tried: bool,
    /// The bytes by which the free memory of the device rose; 0 where the driver does not tell.
    pub freed: u64,
}

/// What the program has set that matters when memory runs out.
///
/// ```
/// assert!(!cuguard::oom::OutOfMemory::default().settings.has_checkpoint);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// How much is recorded.
    pub level: Level,
    /// One thing in so many is recorded; 0 and 1 are all.
    pub sample: u32,
    /// Whether there was a [`Context::mark_oom_baseline`](crate::Context::mark_oom_baseline).
    pub has_checkpoint: bool,
    /// How many callbacks there are that can give memory back.
    pub callbacks: u64,
    /// How many devices there are; 0 where that is not known.
    pub devices: u32,
}

impl KindUsage {
    /// So many blocks of so many bytes together.
    ///
    /// ```
    /// assert_eq!(cuguard::oom::KindUsage::new(cuguard::Kind::Managed, 1, 8).amount.count, 1);
    /// ```
    #[must_use]
    pub const fn new(kind: Kind, count: u64, bytes: u64) -> Self {
        Self {
            kind,
            amount: Amount::new(count, bytes),
        }
    }
}

impl RecoveryStep {
    /// The word for it in data such as JSON: one word that never changes.
    ///
    /// ```
    /// assert_eq!(cuguard::oom::RecoveryStep::Wait.name(), "wait");
    /// ```
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Callbacks => "callbacks",
            Self::Wait => "wait",
            Self::Trim => "trim",
        }
    }
}
