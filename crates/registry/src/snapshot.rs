//! A snapshot: what the registry knows at one moment, as plain sorted data.

use std::fmt;
use std::time::Duration;

use crate::counters::{Amount, Totals};
use crate::group::Group;
use crate::kind::{ResourceKind, TrackingLevel};
use crate::origin::{Origin, Site};
use crate::pool_usage::PoolUsage;

/// What a context holds at one moment: live resources with their call sites, escaped ones, failed frees.
///
/// It is plain data without ties to the driver, and can be kept, compared ([`diff`](Self::diff)) and
/// printed: the trait `cuguard::report::Report` renders it as text and JSON.
///
/// Groups are sorted: the largest first, and where sizes are equal, by names and lines of the program,
/// so that two runs give the same order. While other threads allocate and free, totals and groups may be
/// of slightly different moments.
///
/// ```
/// use cuguard::ResourceKind;
/// use cuguard::snapshot::{Group, Snapshot};
///
/// let mut snapshot = Snapshot::default();
/// assert!(snapshot.is_clean());
///
/// snapshot.live.push(Group::new(ResourceKind::Device, "f32", 2, 4096));
/// assert!(!snapshot.is_clean());
/// assert_eq!(snapshot.leaked().bytes, 4096);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Which context, and why the snapshot was taken.
    pub info: ContextInfo,
    /// How much was recorded.
    pub level: TrackingLevel,
    /// One resource in this many was recorded; 1 for all. Above 1 the figures of the groups are
    /// estimates. The [`totals`](Self::totals) are always exact.
    pub sample: u32,
    /// When it was taken, since the process created its first context.
    pub taken_at: Duration,
    /// Figures by kind, for kinds that were ever allocated.
    pub totals: Vec<(ResourceKind, Totals)>,
    /// The pools of cuguard that are alive, and what they hold.
    pub pools: Vec<PoolUsage>,
    /// Resources that are alive and have not escaped. At the end of a context these are the leaks.
    pub live: Vec<Group>,
    /// Live resources without a record, because they were allocated at [`TrackingLevel::Counts`] or no sample
    /// picked them.
    pub unrecorded: Vec<(ResourceKind, Amount)>,
    /// Resources whose ownership `into_raw` released, and `from_raw` did not take again.
    pub escaped: Vec<Group>,
    /// Resources that were dropped inside a host function, where the driver permits no free, and streams
    /// and pools that only such memory keeps. They are freed at the next operation outside of one, and are
    /// no leaks.
    pub deferred: Vec<Group>,
    /// Resources that the driver refused to free.
    pub failed_frees: Vec<FailedFreeGroup>,
    /// Guards that were dropped after the end of their context.
    pub late_drops: Vec<(ResourceKind, Amount)>,
    /// The first error that left the context unusable, such as a kernel's access to a bad address. Every
    /// later call fails with it, frees included. The operation is the one that returned the error first;
    /// its cause was enqueued earlier.
    pub broken: Option<FailedCall>,
    /// Why the driver did not release the context, whose memory then stays allocated.
    pub not_released: Option<FailedCall>,
    /// Where the `Context` was dropped, if that was before the last of its resources, which kept it open.
    pub dropped: Option<Origin>,
}

impl Default for Snapshot {
    /// An empty snapshot.
    fn default() -> Self {
        Self {
            info: ContextInfo::default(),
            level: TrackingLevel::default(),
            sample: 1,
            taken_at: Duration::ZERO,
            totals: Vec::new(),
            pools: Vec::new(),
            live: Vec::new(),
            unrecorded: Vec::new(),
            escaped: Vec::new(),
            deferred: Vec::new(),
            failed_frees: Vec::new(),
            late_drops: Vec::new(),
            broken: None,
            not_released: None,
            dropped: None,
        }
    }
}

impl Snapshot {
    /// Whether nothing leaked: nothing is alive but what escaped, no free failed, and the context was
    /// released.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.live.is_empty()
            && self.unrecorded.is_empty()
            && self.failed_frees.is_empty()
            && self.not_released.is_none()
    }

    /// How much is alive and has not escaped, with and without records.
    #[must_use]
    pub fn leaked(&self) -> Amount {
        let recorded = self.live.iter().map(|group| group.amount);
        let unrecorded = self.unrecorded.iter().map(|(_, amount)| *amount);
        recorded.chain(unrecorded).sum()
    }
}

/// Which context a [`Snapshot`] is of, and why it was taken.
///
/// ```
/// let mut info = cuguard::snapshot::ContextInfo::default();
/// info.device_name = "NVIDIA H200".into();
/// info.context = 1;
/// assert_eq!(info.to_string(), "context 1 (dedicated) on device 0, NVIDIA H200");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContextInfo {
    /// The ordinal of the device.
    pub device: u32,
    /// Its name, as the driver returns it.
    pub device_name: String,
    /// The number of the context; the process counts them from 1.
    pub context: u64,
    /// Whether it is the device's primary context.
    pub primary: bool,
    /// Why the snapshot was taken.
    pub reason: SnapshotReason,
    /// The call of `Context::close`, where that is the reason.
    pub closed_at: Option<Site>,
}

impl fmt::Display for ContextInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ownership = if self.primary { "primary" } else { "dedicated" };
        let (context, device) = (self.context, self.device);
        write!(f, "context {context} ({ownership}) on device {device}")?;
        match self.device_name.as_str() {
            "" => Ok(()),
            name => write!(f, ", {name}"),
        }
    }
}

/// Why a [`Snapshot`] was taken.
///
/// ```
/// assert_eq!(cuguard::snapshot::SnapshotReason::NeverClosed.name(), "never_closed");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SnapshotReason {
    /// The program requested it.
    #[default]
    Requested,
    /// A `Checkpoint` compared two snapshots: this is what was left behind in between.
    LeftBehind,
    /// The context was dropped and is torn down, because no resource keeps it open.
    Drop,
    /// The context is being closed.
    Close,
    /// The process exits; the context was dropped, and live resources kept it open.
    KeptOpen,
    /// The process exits, and the context was never closed.
    NeverClosed,
    /// The process exits, and guards were dropped after the context was closed and reported. Such a
    /// snapshot has nothing but late drops.
    LateDrops,
}

impl SnapshotReason {
    /// Its name in JSON, which never changes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requested => "requested",
            Self::LeftBehind => "left_behind",
            Self::Drop => "drop",
            Self::Close => "close",
            Self::NeverClosed => "never_closed",
            Self::KeptOpen => "kept_open",
            Self::LateDrops => "late_drops",
        }
    }
}

/// Failed frees of one group, with one error, at one call site.
///
/// ```
/// use cuguard::ResourceKind;
/// use cuguard::snapshot::{FailedFreeGroup, Group};
///
/// let allocated = Group::new(ResourceKind::Device, "f32", 1, 4096);
/// let failed = FailedFreeGroup::new(allocated, "cuMemFree", 700, "CUDA_ERROR_ILLEGAL_ADDRESS");
/// assert_eq!(failed.code, 700);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct FailedFreeGroup {
    /// What was to be freed, and where it was allocated.
    pub allocated: Group,
    /// Where it was to be freed. The stack trace is recorded at every level.
    pub freed: Origin,
    /// The driver's function.
    pub function: &'static str,
    /// The driver's error code.
    pub code: u32,
    /// The name of the code.
    pub code_name: &'static str,
}

impl FailedFreeGroup {
    /// Failed frees at an unknown call site.
    #[must_use]
    pub const fn new(
        allocated: Group,
        function: &'static str,
        code: u32,
        code_name: &'static str,
    ) -> Self {
        Self {
            allocated,
            freed: Origin::UNKNOWN,
            function,
            code,
            code_name,
        }
    }
}

/// A driver call that failed, as plain data.
///
/// ```
/// let failed = cuguard::snapshot::FailedCall {
///     operation: "Stream::scope",
///     function: "cuStreamSynchronize",
///     code: 700,
///     code_name: "CUDA_ERROR_ILLEGAL_ADDRESS",
/// };
/// assert_eq!(failed.code, 700);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedCall {
    /// The function of this crate that made the call.
    pub operation: &'static str,
    /// The driver's function.
    pub function: &'static str,
    /// The driver's error code.
    pub code: u32,
    /// The name of the code.
    pub code_name: &'static str,
}
