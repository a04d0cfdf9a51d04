//! Amounts, ages and counts in words.

use std::time::Duration;

use super::paths::Paths;
use crate::size::ByteSize;
use cuguard_registry::{Amount, ContextInfo, FailedCall, Group, Kind, Snapshot, SnapshotReason};

/// How many threads or addresses of a group are named.
const NAMED: usize = 4;

/// How long ago, with as much detail as a person wants.
pub(crate) fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0 if age < Duration::from_millis(1) => format!("{} µs", age.as_micros()),
        0 => format!("{} ms", age.as_millis()),
        1..60 => format!("{}.{} s", seconds, age.subsec_millis() / 100),
        60..3_600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3_600),
    }
}

/// `1 leak`, `2 leaks`.
pub(crate) fn count(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// `4 KiB in 2 allocations of device memory`, `1 stream`.
pub(crate) fn things(kind: Kind, amount: Amount) -> String {
    if kind.is_memory() {
        let allocations = count(amount.count, "allocation");
        format!("{} in {allocations} of {kind}", ByteSize(amount.bytes))
    } else {
        count(amount.count, &kind.to_string())
    }
}

/// The sum of numbers that may be anything: snapshots are plain data.
pub(super) fn total(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.fold(0, u64::saturating_add)
}

/// Amounts of several kinds: `4 KiB in 2 allocations and 1 stream`.
pub(super) fn sum(amounts: impl IntoIterator<Item = (Kind, Amount)>) -> String {
    let mut memory = Amount::default();
    let mut handles = [0_u64; Kind::ALL.len()];
    for (kind, amount) in amounts {
        if kind.is_memory() {
            memory += amount;
        } else {
            handles[kind.index()] = amount.count.saturating_add(handles[kind.index()]);
        }
    }
    let mut parts = Vec::new();
    if memory.count != 0 {
        let allocations = count(memory.count, "allocation");
        parts.push(format!("{} in {allocations}", ByteSize(memory.bytes)));
    }
    for (kind, handles) in Kind::ALL
        .iter()
        .zip(handles)
        .filter(|(_, handles)| *handles != 0)
    {
        parts.push(count(handles, &kind.to_string()));
    }
    list(&parts)
}

/// `a`, `a and b`, `a, b and c`.
pub(crate) fn list<S: AsRef<str>>(parts: &[S]) -> String {
    let mut text = String::new();
    for (index, part) in parts.iter().enumerate() {
        let gap = match index {
            0 => "",
            _ if index + 1 == parts.len() => " and ",
            _ => ", ",
        };
        text.push_str(gap);
        text.push_str(part.as_ref());
    }
    text
}

/// What became of the context.
fn fate(reason: SnapshotReason) -> &'static str {
    match reason {
        SnapshotReason::Requested | SnapshotReason::LeftBehind => "in use",
        SnapshotReason::Drop => "dropped",
        SnapshotReason::Close => "closed",
        SnapshotReason::NeverClosed => "never closed",
        SnapshotReason::KeptOpen => "kept open until exit",
        SnapshotReason::LateDrops => "closed before its guards",
    }
}

/// The words for an empty report. A context that was never closed may itself be forgotten.
pub(super) fn nothing(reason: SnapshotReason) -> &'static str {
    match reason {
        SnapshotReason::Requested => "nothing is alive",
        SnapshotReason::LeftBehind => "nothing was left behind",
        SnapshotReason::NeverClosed => "no resource leaked",
        _ => "nothing leaked",
    }
}

/// What there ever was, for the one line when nothing is left.
pub(super) fn made(snapshot: &Snapshot) -> String {
    let made = total(snapshot.totals.iter().map(|(_, totals)| totals.allocated));
    match made {
        0 => String::new(),
        made => format!(" ({} made and freed)", count(made, "thing")),
    }
}

/// The first few addresses of a group.
pub(super) fn addresses(group: &Group) -> String {
    match group.addresses.as_slice() {
        [] => "address unknown".to_owned(),
        addresses => some(addresses, |address| format!("{address:#x}")),
    }
}

/// The first few of a list, and how many more there are.
pub(super) fn some<T>(items: &[T], word: impl Fn(&T) -> String) -> String {
    let mut words: Vec<_> = items.iter().take(NAMED).map(word).collect();
    if items.len() > NAMED {
        words.push(format!("{} more", items.len() - NAMED));
    }
    list(&words)
}

/// Whether the report is made as the process exits, of a context that is still open.
pub(super) fn is_at_exit(reason: SnapshotReason) -> bool {
    matches!(
        reason,
        SnapshotReason::NeverClosed | SnapshotReason::KeptOpen
    )
}

/// What was dropped in a host function and is not freed, if there is anything. At exit it stays so.
pub(super) fn deferred(snapshot: &Snapshot) -> Option<String> {
    let deferred = snapshot.deferred.iter();
    let what = sum(deferred.clone().map(|group| (group.kind, group.amount)));
    let dropped = match total(deferred.map(|group| group.amount.count)) {
        0 => return None,
        1 => "1 was dropped in a host function".to_owned(),
        many => format!("{many} were dropped in a host function"),
    };
    Some(if is_at_exit(snapshot.info.reason) {
        format!(
            "{dropped} and not freed before the exit ({what}); call synchronize after the last \
             host function"
        )
    } else {
        format!("{dropped} and not freed yet: {what}")
    })
}

/// Which error broke a context, and who met it.
pub(super) fn broken(broken: &FailedCall) -> String {
    let FailedCall {
        function,
        operation,
        ..
    } = broken;
    format!(
        "{}, first returned by {function} in {operation}",
        code(broken)
    )
}

/// What the driver refused.
pub(super) fn refusal(refusal: &FailedCall) -> String {
    format!("{} failed with {}", refusal.function, code(refusal))
}

fn code(refusal: &FailedCall) -> String {
    match refusal.code_name {
        "" => format!("error {}", refusal.code),
        name => format!("{name} ({})", refusal.code),
    }
}

/// What a summary has to say.
pub(super) struct Found<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) leaked: String,
    pub(super) failed_frees: u64,
    pub(super) suppressed: String,
}

impl<'a> Found<'a> {
    /// All that is in a snapshot.
    pub(super) fn in_snapshot(snapshot: &'a Snapshot) -> Self {
        let leaks = snapshot.live.iter();
        let leaks = leaks.map(|group| (group.kind, group.amount));
        let failed = snapshot.failed_frees.iter();
        Self {
            snapshot,
            leaked: sum(leaks.chain(snapshot.unrecorded.iter().copied())),
            failed_frees: total(failed.map(|failed| failed.allocated.amount.count)),
            suppressed: String::new(),
        }
    }

    /// What leaked in one sentence: `leaked 4 KiB in 2 allocations; 1 free failed`.
    pub(super) fn sentence(&self) -> String {
        let mut parts = Vec::new();
        if !self.leaked.is_empty() {
            parts.push(format!("leaked {}", self.leaked));
        }
        if self.failed_frees != 0 {
            parts.push(format!("{} failed", count(self.failed_frees, "free")));
        }
        if let Some(error) = &self.snapshot.not_released {
            parts.push(format!("the context was not released: {}", refusal(error)));
        }
        match (parts.is_empty(), self.suppressed.is_empty()) {
            (true, true) => parts.push(nothing(self.snapshot.info.reason).to_owned()),
            (true, false) => parts.push("no leaks but suppressed ones".to_owned()),
            (false, _) => {}
        }
        if !self.suppressed.is_empty() {
            parts.push(format!("suppressed {}", self.suppressed));
        }
        if let Some(deferred) = deferred(self.snapshot) {
            parts.push(deferred);
        }
        if let Some(error) = &self.snapshot.broken {
            parts.push(format!("the device failed with {}", broken(error)));
        }
        parts.join("; ")
    }

    /// The sentence with the context: `cuguard: leaked 1 stream (context 1, closed at src/main.rs:41)`.
    pub(super) fn line(&self, paths: &Paths) -> String {
        let context = context(&self.snapshot.info, paths);
        format!("cuguard: {} ({context})", self.sentence())
    }

    /// The one line about a leak where nobody asked for a report.
    pub(super) fn warning(&self, paths: &Paths) -> String {
        self.line(paths) + "; LEAK_REPORT=1 shows where"
    }
}

/// Which context, and what became of it.
fn context(info: &ContextInfo, paths: &Paths) -> String {
    format!("context {}, {}", info.context, end(info, paths))
}

/// What became of the context, and where: `closed at src/main.rs:41`.
pub(super) fn end(info: &ContextInfo, paths: &Paths) -> String {
    let fate = fate(info.reason);
    match info.closed_at {
        Some(site) => {
            let file = paths.shorten(site.file);
            format!("{fate} at {file}:{}", site.line)
        }
        None => fate.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Found, age, list, sum, things};
    use crate::Report;
    use crate::paths::Paths;
    use cuguard_registry::{
        Amount, FailedCall, FailedFreeGroup, Group, Kind, LateDrops, Site, Snapshot,
        SnapshotReason, Totals,
    };

    fn warning(snapshot: &Snapshot) -> String {
        Found::in_snapshot(snapshot).warning(&Paths::new())
    }

    #[test]
    fn ages_read_well() {
        for (nanoseconds, text) in [
            (0, "0 µs"),
            (999_999, "999 µs"),
            (1_000_000, "1 ms"),
            (999_999_999, "999 ms"),
            (1_290_000_000, "1.2 s"),
            (59_999_000_000, "59.9 s"),
            (185_000_000_000, "3 min 5 s"),
            (7_380_000_000_000, "2 h 3 min"),
            (180_000_000_000_000, "2 d 2 h"),
        ] {
            assert_eq!(age(Duration::from_nanos(nanoseconds)), text);
        }
    }

    #[test]
    fn amounts_read_well() {
        assert_eq!(
            things(Kind::Pinned, Amount::new(1, 5)),
            "5 B in 1 allocation of pinned host memory"
        );
        assert_eq!(things(Kind::Stream, Amount::new(2, 0)), "2 streams");
        assert_eq!(sum([]), "");
        let all = [
            (Kind::Event, Amount::new(1, 0)),
            (Kind::Device, Amount::new(1, 1024)),
            (Kind::Managed, Amount::new(2, 1024)),
            (Kind::Stream, Amount::new(3, 0)),
        ];
        assert_eq!(sum(all), "2 KiB in 3 allocations, 3 streams and 1 event");
        assert_eq!(list(&["a", "b"]), "a and b");
    }

    /// Snapshots are plain data, and a program may put any numbers into them.
    #[test]
    fn no_numbers_are_too_large() {
        let most = || Group::new(Kind::Event, "", u64::MAX, u64::MAX);
        let mut snapshot = Snapshot {
            live: vec![most(), most()],
            ..Snapshot::default()
        };
        snapshot.live[0].type_name = "another";
        let failed = |function| FailedFreeGroup::new(most(), function, 1, "INVALID");
        snapshot.failed_frees = vec![failed("one"), failed("other")];
        let late = |kind| LateDrops::new(kind, u64::MAX, u64::MAX);
        snapshot.late_drops = vec![late(Kind::Device), late(Kind::Event)];
        let totals = Totals {
            allocated: u64::MAX,
            ..Totals::default()
        };
        snapshot.totals = vec![(Kind::Device, totals), (Kind::Event, totals)];
        let events = "18446744073709551615 events";
        assert!(warning(&snapshot).contains(events));
        assert!(snapshot.display().to_string().contains(events));
        assert!(snapshot.to_json().contains("18446744073709551615"));
        snapshot.info.reason = SnapshotReason::LateDrops;
        assert!(
            snapshot
                .display()
                .to_string()
                .contains("18446744073709551615 guards")
        );
        snapshot.info.reason = SnapshotReason::Close;
        snapshot.live.clear();
        snapshot.failed_frees.clear();
        snapshot.late_drops.clear();
        let made = "(18446744073709551615 things made and freed)";
        assert!(snapshot.display().to_string().contains(made));
    }

    #[test]
    fn the_warning_names_the_context_and_the_sums() {
        let mut snapshot = Snapshot::default();
        snapshot.info.reason = SnapshotReason::Close;
        snapshot.live.push(Group::new(Kind::Device, "f32", 2, 8192));
        let failed = Group::new(Kind::Device, "f32", 1, 1);
        snapshot
            .failed_frees
            .push(FailedFreeGroup::new(failed, "cuMemFree", 1, "INVALID"));
        assert_eq!(
            warning(&snapshot),
            "cuguard: leaked 8 KiB in 2 allocations; 1 free failed (context 0, closed); \
             LEAK_REPORT=1 shows where"
        );
        snapshot.info.closed_at = Some(Site::new("src/app.rs", 41, 5));
        snapshot.failed_frees.clear();
        assert_eq!(
            warning(&snapshot),
            "cuguard: leaked 8 KiB in 2 allocations (context 0, closed at src/app.rs:41); \
             LEAK_REPORT=1 shows where"
        );
        snapshot.live.clear();
        snapshot.not_released = Some(FailedCall::new("close", "cuCtxDestroy", 700, "ILLEGAL"));
        assert_eq!(
            warning(&snapshot),
            "cuguard: the context was not released: cuCtxDestroy failed with ILLEGAL (700) \
             (context 0, closed at src/app.rs:41); LEAK_REPORT=1 shows where"
        );
    }

    #[test]
    fn a_run_with_suppressed_leaks_does_not_say_that_nothing_leaked() {
        let mut snapshot = Snapshot::default();
        snapshot.info.reason = SnapshotReason::Close;
        let mut found = Found::in_snapshot(&snapshot);
        assert_eq!(found.sentence(), "nothing leaked");
        found.suppressed = "4 KiB in 1 allocation".to_owned();
        assert_eq!(
            found.sentence(),
            "no leaks but suppressed ones; suppressed 4 KiB in 1 allocation"
        );
        found.leaked = "1 stream".to_owned();
        assert_eq!(
            found.sentence(),
            "leaked 1 stream; suppressed 4 KiB in 1 allocation"
        );
    }
}
