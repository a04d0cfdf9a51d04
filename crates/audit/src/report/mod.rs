//! The report: what is alive, what of it the program still has the address of, and how it came to be.
//!
//! ```text
//!     registry ──► targets ──► search ──► fates ──► snapshot ─┐
//!        ├──► peak, history, destroyed ───────────────────────┼──► cuguard_report::audit ──► text, JSON
//!     functions that are not recorded ────────────────────────┘
//! ```
//!
//! Nothing here calls the driver or writes anything. Must not know why the process ends.

mod targets;

use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use cuguard_registry::{ContextInfo, Key, Record, Snapshot};
use cuguard_report::audit::{DUMP, Failure, Process, Rendered, Search, render};
use cuguard_report::{ReportSettings, register_frames};
use cuguard_sync::since_start;

use self::targets::{Fates, Targets};
use crate::search::{Limits, search};
use crate::{python, shortage, state};

/// The functions that were called and are not recorded, with the number of calls.
type Unrecorded = fn() -> Vec<(String, u64)>;

static UNRECORDED: OnceLock<Unrecorded> = OnceLock::new();

/// Sets the function that lists calls of functions that are not recorded.
pub(crate) fn set_unrecorded(list: Unrecorded) {
    let _ = UNRECORDED.set(list);
}

/// A search that was made before the report.
#[derive(Debug)]
struct Early {
    fates: Fates,
    search: Option<Search>,
}

static EARLY: Mutex<Option<Early>> = Mutex::new(None);

/// Searches for what is alive now. The report, which is made later, has what is not freed by then. Only the first call
/// searches: the exit of an interpreter begins before that of the process, and ends the objects that have the addresses.
pub(crate) fn search_early() {
    let mut early = cuguard_sync::lock(&EARLY);
    // Nothing that the program does grows while it exits.
    state::registry().end_history();
    if early.is_none() {
        let (fates, search) = find(None);
        *early = Some(Early { fates, search });
    }
}

/// Searches for the records that the early search does not cover, if there are any.
fn find(early: Option<&Early>) -> (Fates, Option<Search>) {
    let is_known =
        |key: &Key, record: &Record| early.is_some_and(|e| e.fates.get(key, record).is_some());
    let targets = Targets::of(state::registry(), is_known);
    let outcome = (!targets.list.is_empty()).then(|| search(&targets.list, Limits::default()));
    let fates = targets.fates(outcome.as_ref());
    let search = outcome.map(|outcome| Search {
        bytes: outcome.bytes_searched,
        elapsed: outcome.elapsed,
        cut_short: outcome.cut_short,
    });
    (fates, search)
}

fn join(one: Option<Search>, other: Option<Search>) -> Option<Search> {
    match (one, other) {
        (Some(one), Some(other)) => Some(Search {
            bytes: one.bytes.max(other.bytes),
            elapsed: one.elapsed + other.elapsed,
            cut_short: one.cut_short.or(other.cut_short),
        }),
        (one, other) => one.or(other),
    }
}

/// Makes the report. `reason` is why, `failure` the error after which the driver fails every call.
pub(crate) fn make(
    settings: &ReportSettings,
    reason: &str,
    failure: Option<(&str, u32)>,
) -> Rendered {
    register_frames(python::resolve);
    let registry = state::registry();
    let early = cuguard_sync::lock(&EARLY).take();
    let (fates, mut search) = find(early.as_ref());
    let fate = |key: &Key, record: &Record| {
        let early = early.as_ref();
        let early = early.and_then(|early| early.fates.get(key, record));
        early.or_else(|| fates.get(key, record)).unwrap_or_default()
    };
    registry.record_fates(|key, record| fate(key, record).0);
    let snapshot = registry.snapshot_with(ContextInfo::default(), fate);
    if let Some(early) = &early {
        search = join(early.search.clone(), search);
    }
    render(&process(snapshot, reason, failure, search), settings)
}

/// Makes a report of the running process. With a search, its threads are stopped for that time. A search at the beginning of an exit
/// is left for the report of the end.
pub(crate) fn make_live(
    settings: &ReportSettings,
    with_search: bool,
    failure: Option<(&str, u32)>,
) -> Rendered {
    register_frames(python::resolve);
    let (fates, search) = match with_search {
        true => find(None),
        false => (Fates::default(), None),
    };
    let fate = |key: &Key, record: &Record| fates.get(key, record).unwrap_or_default();
    let snapshot = state::registry().snapshot_with(ContextInfo::default(), fate);
    render(&process(snapshot, DUMP, failure, search), settings)
}

/// Whether a report has more to say than that nothing was recorded.
pub(crate) fn has_findings() -> bool {
    let unrecorded = UNRECORDED.get().is_some_and(|list| !list().is_empty());
    state::is_used() || unrecorded || !shortage::all_refused().is_empty()
}

/// What is known of this process.
fn process(
    snapshot: Snapshot,
    reason: &str,
    failure: Option<(&str, u32)>,
    search: Option<Search>,
) -> Process {
    let registry = state::registry();
    let from_start = |time: Duration| {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Duration::from_nanos(since_start(time))
    };
    let mut peak = registry.peak();
    if let Some(peak) = &mut peak {
        peak.time = from_start(peak.time);
    }
    let mut groups = snapshot.live;
    groups.extend(registry.destroyed());
    Process {
        pid: std::process::id(),
        command: cuguard_live::command_line(),
        reason: reason.to_owned(),
        duration: from_start(snapshot.taken_at),
        groups,
        totals: snapshot.totals,
        history: registry.history(),
        peak,
        unrecorded: UNRECORDED.get().map_or_else(Vec::new, |list| list()),
        search,
        failure: failure.map(|(function, code)| Failure {
            function: function.to_owned(),
            code,
        }),
        refused: shortage::all_refused(),
    }
}
