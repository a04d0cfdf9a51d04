//! What a report is made of, as plain data.

use std::time::Duration;

use cuguard_registry::{Group, History, Origin, Peak, ResourceKind, Totals};

/// Why a report is made that was requested from outside, by a signal or by `cuguard dump`: the process still runs.
///
/// ```
/// assert_eq!(cuguard_report::audit::DUMP, "dump");
/// ```
pub const DUMP: &str = "dump";

/// What is known of a process when its report is made.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its command line.
    pub command: String,
    /// Why the report is made: `exit`, `SIGTERM`, `requested`, [`DUMP`].
    pub reason: String,
    /// How long it ran.
    pub duration: Duration,
    /// What is alive, with the fate of each group; and what was destroyed with its context.
    pub groups: Vec<Group>,
    /// Figures by kind, for kinds that were ever allocated.
    pub totals: Vec<(ResourceKind, Totals)>,
    /// The live bytes of call sites over the run.
    pub history: History,
    /// What was alive at the peak.
    pub peak: Option<Peak>,
    /// Functions of the driver that look as if they allocate and are not recorded, and how often they were called.
    pub unrecorded: Vec<(String, u64)>,
    /// How addresses were searched for; `None` where they were not.
    pub search: Option<Search>,
    /// The error after which the driver fails every call.
    pub failure: Option<Failure>,
    /// What the driver refused for lack of memory, by function and call site, in the order of the first of each.
    pub refused: Vec<Refused>,
}

impl Process {
    /// All stack traces that a report may name.
    pub(super) fn stacks(&self) -> impl Iterator<Item = &'static [usize]> + '_ {
        let groups = self.groups.iter().map(|group| group.origin.stack);
        let sites = self.history.sites.iter().map(|site| site.origin.stack);
        let peak = self.peak.iter().flat_map(|peak| &peak.sites);
        let peak = peak.map(|(origin, _)| origin.stack);
        let refused = self.refused.iter().map(|refused| refused.origin.stack);
        groups.chain(sites).chain(peak).chain(refused)
    }
}

/// Allocations of one call site that the driver refused for lack of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refused {
    /// The function of the driver.
    pub function: String,
    /// What was to be allocated, where the function says it.
    pub kind: Option<ResourceKind>,
    /// The bytes of the first; `None` where only the driver knows.
    pub bytes: Option<u64>,
    /// The bytes of the largest.
    pub largest: Option<u64>,
    /// How many were refused.
    pub count: u64,
    /// The call site.
    pub origin: Origin,
    /// Why one was refused, the last that was diagnosed: lines of text, as they are printed for the first ones.
    pub diagnosis: String,
}

/// How addresses were searched for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Search {
    /// How much memory of the process was read.
    pub bytes: u64,
    /// How long it took.
    pub elapsed: Duration,
    /// Why not all of it was read.
    pub cut_short: Option<String>,
}

/// An error after which the driver fails every call of the process, frees included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The function that returned it first.
    pub function: String,
    /// The driver's error code.
    pub code: u32,
}
