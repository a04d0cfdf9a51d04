//! The report in one line.

use cuguard_registry::Snapshot;

use crate::paths::Paths;
use crate::phrase::count;
use crate::prepare::PreparedSnapshot;
use crate::words::{broken, context_end, deferred, failed_call, nothing, sum, total};

/// The figures of a one-line report.
pub(crate) struct Summary<'a> {
    snapshot: &'a Snapshot,
    leaked: String,
    failed_frees: u64,
    suppressed: String,
}

impl<'a> Summary<'a> {
    /// Of a snapshot without suppressions.
    pub(crate) fn of_snapshot(snapshot: &'a Snapshot) -> Self {
        let live = snapshot.live.iter().map(|group| (group.kind, group.amount));
        let failed = snapshot.failed_frees.iter();
        Self {
            snapshot,
            leaked: sum(live.chain(snapshot.unrecorded.iter().copied())),
            failed_frees: total(failed.map(|failed| failed.allocated.amount.count)),
            suppressed: String::new(),
        }
    }

    pub(crate) fn of(prepared: &PreparedSnapshot<'a>) -> Self {
        Self {
            snapshot: prepared.snapshot,
            leaked: sum(prepared.leaked()),
            failed_frees: prepared.failed_count(),
            suppressed: sum(prepared.suppressed.amounts.iter().copied()),
        }
    }

    /// What leaked: `leaked 4 KiB in 2 allocations; 1 free failed`.
    fn sentence(&self) -> String {
        let mut parts = Vec::new();
        if !self.leaked.is_empty() {
            parts.push(format!("leaked {}", self.leaked));
        }
        if self.failed_frees != 0 {
            parts.push(format!("{} failed", count(self.failed_frees, "free")));
        }
        if let Some(error) = &self.snapshot.not_released {
            let error = failed_call(error);
            parts.push(format!("the context was not released: {error}"));
        }
        match (parts.is_empty(), self.suppressed.is_empty()) {
            (true, true) => parts.push(nothing(self.snapshot.info.reason).to_owned()),
            (true, false) => parts.push("no leaks but suppressed ones".to_owned()),
            (false, _) => {}
        }
        if !self.suppressed.is_empty() {
            parts.push(format!("suppressed {}", self.suppressed));
        }
        parts.extend(deferred(self.snapshot));
        if let Some(error) = &self.snapshot.broken {
            parts.push(format!("the device failed with {}", broken(error)));
        }
        parts.join("; ")
    }

    /// With the context: `cuguard: leaked 1 stream (context 1, closed at src/main.rs:41)`.
    pub(crate) fn line(&self, paths: &Paths) -> String {
        let info = &self.snapshot.info;
        let (sentence, end) = (self.sentence(), context_end(info, paths));
        format!("cuguard: {sentence} (context {}, {end})", info.context)
    }

    /// The one line about a leak where there is no report.
    pub(crate) fn warning(&self, paths: &Paths) -> String {
        self.line(paths) + "; LEAK_REPORT=1 shows where"
    }
}

#[cfg(test)]
mod tests {
    use cuguard_registry::{
        Amount, FailedCall, FailedFreeGroup, Group, ResourceKind, Site, Snapshot, SnapshotReason,
        Totals,
    };

    use super::Summary;
    use crate::paths::Paths;
    use crate::report_trait::Report;

    fn warning(snapshot: &Snapshot) -> String {
        Summary::of_snapshot(snapshot).warning(&Paths::new())
    }

    /// Snapshots are plain data, and a program may put any numbers into them.
    #[test]
    fn no_numbers_are_too_large() {
        let most = || Group::new(ResourceKind::Event, "", u64::MAX, u64::MAX);
        let mut snapshot = Snapshot {
            live: vec![most(), most()],
            ..Snapshot::default()
        };
        snapshot.live[0].type_name = "another";
        let failed = |function| FailedFreeGroup::new(most(), function, 1, "INVALID");
        snapshot.failed_frees = vec![failed("one"), failed("other")];
        let late = |kind| (kind, Amount::new(u64::MAX, u64::MAX));
        snapshot.late_drops = vec![late(ResourceKind::Device), late(ResourceKind::Event)];
        let totals = Totals {
            allocated: u64::MAX,
            ..Totals::default()
        };
        snapshot.totals = vec![
            (ResourceKind::Device, totals),
            (ResourceKind::Event, totals),
        ];
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
        let made = "(18446744073709551615 resources allocated and freed)";
        assert!(snapshot.display().to_string().contains(made));
    }

    #[test]
    fn the_warning_names_the_context_and_the_sums() {
        let mut snapshot = Snapshot::default();
        snapshot.info.reason = SnapshotReason::Close;
        snapshot
            .live
            .push(Group::new(ResourceKind::Device, "f32", 2, 8192));
        let failed = Group::new(ResourceKind::Device, "f32", 1, 1);
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
        snapshot.not_released = Some(FailedCall {
            operation: "close",
            function: "cuCtxDestroy",
            code: 700,
            code_name: "ILLEGAL",
        });
        assert_eq!(
            warning(&snapshot),
            "cuguard: the context was not released: cuCtxDestroy returned ILLEGAL (700) \
             (context 0, closed at src/app.rs:41); LEAK_REPORT=1 shows where"
        );
    }

    #[test]
    fn a_run_with_suppressed_leaks_does_not_say_that_nothing_leaked() {
        let mut snapshot = Snapshot::default();
        snapshot.info.reason = SnapshotReason::Close;
        let mut found = Summary::of_snapshot(&snapshot);
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
