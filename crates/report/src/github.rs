//! The leak report as workflow commands of GitHub Actions: an error at the call site of each leak.

use std::fmt::Write;

use cuguard_registry::{Group, Site, SnapshotReason};

use crate::annotations::{Annotations, Location};
use crate::phrase::count;
use crate::prepare::PreparedSnapshot;
use crate::rows::{FailedRow, Row};
use crate::summary::Summary;
use crate::symbols::Frame;
use crate::words::{amount_of, description};

/// The annotations, each on a line of its own, and the sum. `root` is the folder of the repository, to which
/// the runner expects relative files.
pub(crate) fn render(prepared: &PreparedSnapshot<'_>, max: usize, root: Option<&str>) -> String {
    if prepared.snapshot.info.reason == SnapshotReason::LateDrops {
        return String::new();
    }
    let mut page = Annotations::new(&prepared.paths, root);
    for row in prepared.live.iter().take(max) {
        leak(&mut page, row);
    }
    for row in prepared.failed.iter().take(max) {
        failed(&mut page, row);
    }
    for (kind, amount) in &prepared.snapshot.unrecorded {
        let what = format!("leaked {}", amount_of(*kind, *amount));
        let helps = match prepared.snapshot.sample {
            1 => "level=sites records the call sites",
            _ => "sample=1 records all call sites",
        };
        let why = format!("{what}, counted without a record; {helps}");
        page.add("error", None, &what, &why);
    }
    let (shown, all) = (prepared.live.len().min(max), prepared.live.len());
    let mut line = Summary::of(prepared).line(&prepared.paths);
    if shown < all {
        let groups = count(all as u64, "group");
        let _ = write!(line, "; {shown} of {groups} shown, max={all} shows all");
    }
    page.finish(&line)
}

fn leak(page: &mut Annotations<'_>, row: &Row<'_>) {
    let group = &row.group;
    let title = format!("leaked {}", amount_of(group.kind, group.amount));
    let mut message = title.clone() + &description(group.type_name, group.label.as_deref());
    page.frames(&mut message, in_app(&row.frames));
    for indirect in &row.indirect {
        let what = amount_of(indirect.group.kind, indirect.group.amount);
        let _ = write!(message, "\nindirect: {what}, kept by this");
    }
    page.add("error", location(group, &row.frames), &title, &message);
}

fn failed(page: &mut Annotations<'_>, row: &FailedRow<'_>) {
    let failed = &row.failed;
    let what = amount_of(failed.allocated.kind, failed.allocated.amount);
    let title = format!("could not free {what}");
    let mut message = format!(
        "{title}: {} returned error {} {}",
        failed.function, failed.code, failed.code_name
    );
    page.frames(&mut message, in_app(&row.allocated));
    let location = location(&failed.allocated, &row.allocated);
    page.add("error", location, &title, &message);
}

fn in_app(frames: &[Frame]) -> impl Iterator<Item = &Frame> {
    frames.iter().filter(|frame| frame.in_app)
}

/// The line of the innermost frame of the program, or the call site.
fn location<'a>(group: &'a Group, frames: &'a [Frame]) -> Option<Location<'a>> {
    let mut lines = in_app(frames).filter_map(|frame| {
        let symbol = &frame.symbol;
        Some((symbol.file.as_deref()?, symbol.line?, symbol.column))
    });
    let site = |site: Site| (site.file, site.line, Some(site.column));
    lines.next().or_else(|| group.origin.site.map(site))
}

#[cfg(test)]
mod tests {
    use super::render;
    use crate::prepare::{PreparedSnapshot, View};
    use cuguard_registry::{
        Amount, FailedFreeGroup, Group, ResourceKind, Site, Snapshot, SnapshotReason,
    };

    fn snapshot() -> Snapshot {
        let mut leak = Group::new(ResourceKind::Device, "f32", 2, 4096);
        leak.origin.site = Some(Site::new("/nowhere/a,b:c%d.rs", 12, 5));
        leak.label = Some("100%\nsure".to_owned());
        let mut snapshot = Snapshot {
            live: vec![leak],
            ..Snapshot::default()
        };
        snapshot.info.reason = SnapshotReason::Close;
        snapshot
    }

    #[test]
    fn properties_and_messages_are_escaped() {
        let text = render(&PreparedSnapshot::new(&snapshot(), View::PLAIN), 20, None);
        assert_eq!(
            text,
            "::error file=/nowhere/a%2Cb%3Ac%25d.rs,line=12,col=5,\
             title=cuguard%3A leaked 4 KiB in 2 allocations of device memory::\
             leaked 4 KiB in 2 allocations of device memory, f32, \"100%25\\nsure\"\n\
             cuguard: leaked 4 KiB in 2 allocations (context 0, closed)\n"
        );
    }

    #[test]
    fn files_are_relative_to_the_repository() {
        let snapshot = snapshot();
        let prepared = PreparedSnapshot::new(&snapshot, View::PLAIN);
        for root in ["/nowhere", "/nowhere/"] {
            let text = render(&prepared, 20, Some(root));
            assert!(text.starts_with("::error file=a%2Cb"), "{text}");
        }
        let text = render(&prepared, 20, Some("/now"));
        assert!(text.starts_with("::error file=/nowhere/a%2Cb"), "{text}");
    }

    #[test]
    fn everything_that_counts_is_an_error_and_max_limits_them() {
        let mut snapshot = snapshot();
        let stream = Group::new(ResourceKind::Stream, "", 1, 0);
        snapshot.live.push(stream.clone());
        let failed = FailedFreeGroup::new(stream, "cuStreamDestroy", 400, "INVALID");
        snapshot.failed_frees.push(failed);
        snapshot
            .unrecorded
            .push((ResourceKind::Pinned, Amount::new(1, 7)));
        let prepared = PreparedSnapshot::new(&snapshot, View::PLAIN);
        let text = render(&prepared, 20, None);
        assert_eq!(text.matches("::error ").count(), 4, "{text}");
        assert!(text.contains("cuStreamDestroy returned error 400 INVALID"));
        let text = render(&prepared, 1, None);
        assert_eq!(text.matches("::error ").count(), 3, "{text}");
        assert!(
            text.ends_with("; 1 of 2 groups shown, max=2 shows all\n"),
            "{text}"
        );
        // Nothing leaked: no annotation.
        let clean = Snapshot::default();
        let text = render(&PreparedSnapshot::new(&clean, View::PLAIN), 20, None);
        assert_eq!(text, "cuguard: nothing is live (context 0, in use)\n");
    }
}
