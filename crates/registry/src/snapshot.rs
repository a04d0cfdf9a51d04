//! A snapshot: all that the registry knows at one moment, as plain sorted data.

use std::fmt;
use std::panic::Location;
use std::time::Duration;

use super::call_site::{self, MAX_DEPTH};
use super::collect;
use super::counters::{Amount, Totals};
use super::diff::Diff;
use super::kind::{Kind, Level};

/// What a context holds at one moment: what is alive with the places that made it, what was given
/// away, which frees failed.
///
/// It is plain data without ties to the driver, and can be kept, compared ([`diff`](Self::diff))
/// and printed: the trait `cuguard_report::Report` renders it as text and JSON.
///
/// Groups are sorted: the largest first, and where sizes are equal, by names and lines of the
/// program, so that two runs give the same order. While other threads allocate and free, the totals
/// and the groups may be of moments that lie a little apart.
///
/// ```
/// use cuguard::Kind;
/// use cuguard::snapshot::{Group, Snapshot};
///
/// let mut snapshot = Snapshot::default();
/// assert!(snapshot.is_clean());
///
/// snapshot.live.push(Group::new(Kind::Device, "f32", 2, 4096));
/// assert!(!snapshot.is_clean());
/// assert_eq!(snapshot.leaked().bytes, 4096);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// Which context, and why the snapshot was taken.
    pub info: ContextInfo,
    /// How much was being recorded.
    pub level: Level,
    /// One thing in so many was recorded, 1 for all of them. Where it is more, the figures of the
    /// groups are estimates: what was recorded, times this. The [`totals`](Self::totals) are exact.
    pub sample: u32,
    /// When it was taken, since the process made its first context.
    pub taken_at: Duration,
    /// Figures by kind, for kinds of which there ever was one.
    pub totals: Vec<(Kind, Totals)>,
    /// What is alive and has not escaped. At the end of a context these are the leaks; in a
    /// snapshot that was asked for, simply what is in use.
    pub live: Vec<Group>,
    /// What was made at [`Level::Counts`] and is alive: it was counted and has no record.
    pub unrecorded: Vec<(Kind, Amount)>,
    /// What was given away by `into_raw` and has not come back.
    pub escaped: Vec<Group>,
    /// What was dropped inside a host function, where the driver permits no free: it is freed at the
    /// next operation outside of one, and is no leak.
    pub deferred: Vec<Group>,
    /// What the driver refused to free.
    pub failed_frees: Vec<FailedFreeGroup>,
    /// Guards that were dropped after the end of their context.
    pub late_drops: Vec<LateDrops>,
    /// The first error that left the context unusable: the device stopped in the middle of its work,
    /// as by a kernel's access to a bad address. Every later call answers the same, frees too. The
    /// operation is the one that met the error first; what caused it was given to the device
    /// earlier.
    pub broken: Option<FailedCall>,
    /// The driver did not take the context back: what it costs stays taken.
    pub not_released: Option<FailedCall>,
    /// Where the [`Context`](crate::Context) was dropped, if that was before the last of its
    /// resources, which then kept it open.
    pub dropped: Option<Origin>,
}

impl Default for Snapshot {
    /// Of nothing.
    fn default() -> Self {
        Self {
            info: ContextInfo::default(),
            level: Level::default(),
            sample: 1,
            taken_at: Duration::ZERO,
            totals: Vec::new(),
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
    /// Whether nothing is left: nothing alive but what was given away, no free failed, and the context
    /// was given back.
    ///
    /// ```
    /// assert!(cuguard::snapshot::Snapshot::default().is_clean());
    /// ```
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.live.is_empty()
            && self.unrecorded.is_empty()
            && self.failed_frees.is_empty()
            && self.not_released.is_none()
    }

    /// How much is alive and has not escaped, with and without records.
    ///
    /// ```
    /// assert!(cuguard::snapshot::Snapshot::default().leaked().is_zero());
    /// ```
    #[must_use]
    pub fn leaked(&self) -> Amount {
        let mut sum = Amount::default();
        self.live.iter().for_each(|group| sum += group.amount);
        self.unrecorded
            .iter()
            .for_each(|(_, amount)| sum += *amount);
        sum
    }

    /// What changed since an earlier snapshot: what appeared, grew, shrank and went.
    ///
    /// ```
    /// use cuguard::Kind;
    /// use cuguard::snapshot::{Group, Snapshot};
    ///
    /// let before = Snapshot::default();
    /// let mut after = before.clone();
    /// after.live.push(Group::new(Kind::Stream, "", 1, 0));
    /// let diff = after.diff(&before);
    /// assert_eq!(diff.changes.len(), 1);
    /// assert!(after.diff(&after).is_empty());
    /// ```
    #[must_use]
    pub fn diff(&self, earlier: &Self) -> Diff {
        Diff::between(earlier, self)
    }
}

/// Which context a [`Snapshot`] is of, and why it was taken.
///
/// ```
/// let mut info = cuguard::snapshot::ContextInfo::default();
/// info.device_name = "NVIDIA H200".into();
/// info.context = 1;
/// assert_eq!(info.to_string(), "context 1 (own) on device 0, NVIDIA H200");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContextInfo {
    /// The number of the device.
    pub device: u32,
    /// Its name, in the driver's words.
    pub device_name: String,
    /// The number of the context; the process counts them from 1.
    pub context: u64,
    /// Whether it is the device's primary context.
    pub primary: bool,
    /// Why the snapshot was taken.
    pub reason: SnapshotReason,
    /// The call of [`Context::close`](crate::Context::close), where that is why.
    pub closed_at: Option<Site>,
}

impl fmt::Display for ContextInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ownership = if self.primary { "primary" } else { "own" };
        write!(
            f,
            "context {} ({ownership}) on device {}",
            self.context, self.device
        )?;
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
pub enum SnapshotReason {
    /// The program asked for it.
    #[default]
    Requested,
    /// A [`Checkpoint`](crate::Checkpoint) compared two snapshots that the program asked for: this is
    /// what was left behind in between.
    LeftBehind,
    /// The context was dropped, and is torn down as nothing keeps it open any more.
    Drop,
    /// The context is being closed.
    Close,
    /// The process ends; the context was dropped, and what is alive in it kept it open.
    KeptOpen,
    /// The process ends, and the context was never closed.
    NeverClosed,
    /// The process ends, and guards were dropped after the context was closed and told of. There is
    /// nothing else in such a snapshot.
    LateDrops,
}

impl SnapshotReason {
    /// The word for it in data such as JSON: one word that never changes.
    ///
    /// ```
    /// assert_eq!(cuguard::snapshot::SnapshotReason::Drop.name(), "drop");
    /// ```
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

/// A line of the program.
///
/// ```
/// let site = cuguard::snapshot::Site::new("src/main.rs", 12, 5);
/// assert_eq!(site.to_string(), "src/main.rs:12:5");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Site {
    /// The file, as the compiler names it.
    pub file: &'static str,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
}

impl Site {
    /// A line of the program.
    ///
    /// ```
    /// assert_eq!(cuguard::snapshot::Site::new("a.rs", 1, 2).line, 1);
    /// ```
    #[must_use]
    pub const fn new(file: &'static str, line: u32, column: u32) -> Self {
        Self { file, line, column }
    }
}

impl From<&'static Location<'static>> for Site {
    fn from(location: &'static Location<'static>) -> Self {
        Self::new(location.file(), location.line(), location.column())
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// Where something was done: the line, and the stack of calls where stacks are recorded.
///
/// ```
/// let origin = cuguard::snapshot::Origin::default();
/// assert!(origin.site.is_none() && origin.stack.is_empty());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Origin {
    /// The line of the program.
    pub site: Option<Site>,
    /// Return addresses, innermost first. Empty below [`Level::Stacks`]. They have a meaning in this
    /// process only; reports look up their names.
    pub stack: &'static [usize],
}

impl Origin {
    /// The calling stack, whatever the level.
    pub fn here() -> Self {
        collect::origin(call_site::stack(None, "", MAX_DEPTH))
    }
}

/// Things of one kind, type and label that were made in one place.
///
/// ```
/// use cuguard::Kind;
/// use cuguard::snapshot::Group;
///
/// let mut group = Group::new(Kind::Device, "f32", 2, 4096);
/// group.label = Some("weights".into());
/// assert_eq!(group.amount.count, 2);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// What they are.
    pub kind: Kind,
    /// The type of the elements; empty for handles.
    pub type_name: &'static str,
    /// Their label.
    pub label: Option<String>,
    /// The place that made them.
    pub origin: Origin,
    /// How many, and how many bytes together.
    pub amount: Amount,
    /// The threads that made them, by name, sorted.
    pub threads: Vec<&'static str>,
    /// The handles of the streams that they were allocated on, sorted. Empty for what is not
    /// allocated on a stream.
    pub streams: Vec<u64>,
    /// How long ago the first of them was made.
    pub oldest: Duration,
    /// How long ago the last of them was made.
    pub youngest: Duration,
    /// Their addresses, or the numbers of their handles, sorted.
    pub addresses: Vec<u64>,
    /// Their owners were dropped, and something else keeps them: a stream that a stream-ordered buffer
    /// is to be freed on, a pool that its memory is from. At the end of a context that is a leak that
    /// only follows from another one.
    pub kept: bool,
}

impl Group {
    /// A group of which nothing else is known yet.
    ///
    /// ```
    /// # use cuguard::Kind;
    /// # use cuguard::snapshot::Group;
    /// assert_eq!(Group::new(Kind::Event, "", 3, 0).amount.count, 3);
    /// ```
    #[must_use]
    pub fn new(kind: Kind, type_name: &'static str, count: u64, bytes: u64) -> Self {
        Self {
            kind,
            type_name,
            label: None,
            origin: Origin::default(),
            amount: Amount::new(count, bytes),
            threads: Vec::new(),
            streams: Vec::new(),
            oldest: Duration::ZERO,
            youngest: Duration::ZERO,
            addresses: Vec::new(),
            kept: false,
        }
    }
}

/// Frees of like things that the driver refused for one reason in one place.
///
/// ```
/// use cuguard::Kind;
/// use cuguard::snapshot::{FailedFreeGroup, Group};
///
/// let made = Group::new(Kind::Device, "f32", 1, 4096);
/// let failed = FailedFreeGroup::new(made, "cuMemFree", 700, "CUDA_ERROR_ILLEGAL_ADDRESS");
/// assert_eq!(failed.code, 700);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct FailedFreeGroup {
    /// What was to be freed, and where it was made.
    pub allocated: Group,
    /// The place that wanted to free it. The stack is recorded at every level.
    pub freed: Origin,
    /// The driver's function.
    pub function: &'static str,
    /// The driver's code.
    pub code: u32,
    /// The code by name.
    pub code_name: &'static str,
}

impl FailedFreeGroup {
    /// Frees of these things that the driver refused.
    ///
    /// ```
    /// # use cuguard::Kind;
    /// # use cuguard::snapshot::{FailedFreeGroup, Group};
    /// let failed = FailedFreeGroup::new(Group::new(Kind::Event, "", 1, 0), "cuEventDestroy", 4, "");
    /// assert_eq!(failed.function, "cuEventDestroy");
    /// ```
    #[must_use]
    pub fn new(
        allocated: Group,
        function: &'static str,
        code: u32,
        code_name: &'static str,
    ) -> Self {
        Self {
            allocated,
            freed: Origin::default(),
            function,
            code,
            code_name,
        }
    }
}

/// A call that the driver refused, as plain data.
///
/// ```
/// let name = "CUDA_ERROR_ILLEGAL_ADDRESS";
/// let refusal = cuguard::snapshot::FailedCall::new("Stream::scope", "cuStreamSynchronize", 700, name);
/// assert_eq!(refusal.code, 700);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedCall {
    /// What was asked of this crate.
    pub operation: &'static str,
    /// The driver's function that answered with the error.
    pub function: &'static str,
    /// The driver's code.
    pub code: u32,
    /// The code by name.
    pub code_name: &'static str,
}

impl FailedCall {
    /// This function answered this code in the course of this operation.
    ///
    /// ```
    /// let broken = cuguard::snapshot::FailedCall::new("Context::synchronize", "cuCtxSynchronize", 719, "");
    /// assert_eq!(broken.operation, "Context::synchronize");
    /// ```
    #[must_use]
    pub const fn new(
        operation: &'static str,
        function: &'static str,
        code: u32,
        code_name: &'static str,
    ) -> Self {
        Self {
            operation,
            function,
            code,
            code_name,
        }
    }
}

/// Guards of one kind that were dropped after the end of their context.
///
/// That is no leak: teardown freed what they held. But it tells of things that live longer than
/// they should.
///
/// ```
/// let late = cuguard::snapshot::LateDrops::new(cuguard::Kind::Device, 1, 100);
/// assert_eq!(late.amount.bytes, 100);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateDrops {
    /// What they held.
    pub kind: Kind,
    /// How many, and how much.
    pub amount: Amount,
}

impl LateDrops {
    /// So many late drops of things of so many bytes together.
    ///
    /// ```
    /// # use cuguard::Kind;
    /// # use cuguard::snapshot::LateDrops;
    /// assert_eq!(LateDrops::new(Kind::Stream, 2, 0).amount.count, 2);
    /// ```
    #[must_use]
    pub const fn new(kind: Kind, count: u64, bytes: u64) -> Self {
        Self {
            kind,
            amount: Amount::new(count, bytes),
        }
    }
}
