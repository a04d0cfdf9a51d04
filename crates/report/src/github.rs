//! The report as workflow commands of GitHub Actions: an error at the line of each leak.
//!
//! ```text
//! ::error file=src/main.rs,line=12,col=5,title=cuguard%3A leaked 1 stream::leaked 1 stream%0A…
//! ```
//!
//! The runner reads them from the output of a step, one a line. In a value a percent sign and line
//! breaks are escaped, in a property colons and commas too.

use std::fmt::Write;

use super::paths::Paths;
use super::prepare::{FailedRow, Prepared, Row};
use super::symbols::Frame;
use super::text::description;
use super::words::{Found, count, sum, things};
use cuguard_registry::{Group, Site, SnapshotReason};

/// The annotations, each on a line of its own, and the sum. `root` is the folder of the repository:
/// the runner wants files relative to it.
pub(super) fn render(prepared: &Prepared<'_>, max: usize, root: Option<&str>) -> String {
    let mut page = Page {
        text: String::new(),
        paths: &prepared.paths,
        root,
    };
    if prepared.snapshot.info.reason == SnapshotReason::LateDrops {
        return page.text;
    }
    for row in prepared.live.iter().take(max) {
        page.leak(row);
    }
    for row in prepared.failed.iter().take(max) {
        page.failed(row);
    }
    for (kind, amount) in &prepared.snapshot.unrecorded {
        let what = format!("leaked {}", things(*kind, *amount));
        let why = format!("{what}, counted without a record; level=sites records the call sites");
        page.error(None, &what, &why);
    }
    let (shown, all) = (prepared.live.len().min(max), prepared.live.len());
    let mut line = found(prepared).line(&prepared.paths);
    if shown < all {
        let groups = count(all as u64, "group");
        let _ = write!(line, "; {shown} of {groups} shown, max={all} shows all");
    }
    page.text.push_str(&line);
    page.text.push('\n');
    page.text
}

/// What a summary of this report has to say.
pub(super) fn found<'a>(prepared: &Prepared<'a>) -> Found<'a> {
    Found {
        snapshot: prepared.snapshot,
        leaked: sum(prepared.leaked()),
        failed_frees: prepared.failed_count(),
        suppressed: sum(prepared.suppressed.amounts.iter().copied()),
    }
}

struct Page<'a> {
    text: String,
    paths: &'a Paths,
    root: Option<&'a str>,
}

/// A line of the program: the file, the line and the column.
type CallSite<'a> = (&'a str, u32, Option<u32>);

impl Page<'_> {
    fn leak(&mut self, row: &Row<'_>) {
        let group = &row.group;
        let title = format!("leaked {}", things(group.kind, group.amount));
        let mut message = title.clone() + &description(group.type_name, group.label.as_deref());
        self.frames(&mut message, &row.frames);
        for indirect in &row.indirect {
            let what = things(indirect.group.kind, indirect.group.amount);
            let _ = write!(message, "\nindirect: {what}, kept by this");
        }
        self.error(place(group, &row.frames), &title, &message);
    }

    fn failed(&mut self, row: &FailedRow<'_>) {
        let failed = &row.failed;
        let what = things(failed.allocated.kind, failed.allocated.amount);
        let title = format!("could not free {what}");
        let mut message = format!(
            "{title}: {} failed with error {} {}",
            failed.function, failed.code, failed.code_name
        );
        self.frames(&mut message, &row.allocated);
        self.error(place(&failed.allocated, &row.allocated), &title, &message);
    }

    fn frames(&self, message: &mut String, frames: &[Frame]) {
        for frame in frames.iter().filter(|frame| frame.in_app) {
            let symbol = &frame.symbol;
            let name = match (&symbol.function, &frame.spot) {
                (Some(name), _) => name.clone(),
                (None, Some(spot)) => format!("{}+{:#x}", spot.name(), spot.offset),
                (None, None) => format!("{:#x}", frame.address),
            };
            let _ = write!(message, "\n  {name}");
            if let (Some(file), Some(line)) = (&symbol.file, symbol.line) {
                let _ = write!(message, "  {}:{line}", self.paths.shorten(file));
            }
        }
    }

    fn error(&mut self, place: Option<CallSite<'_>>, title: &str, message: &str) {
        self.text.push_str("::error ");
        if let Some((file, line, column)) = place {
            let _ = write!(
                self.text,
                "file={},line={line},",
                property(&self.file(file))
            );
            if let Some(column) = column {
                let _ = write!(self.text, "col={column},");
            }
        }
        let title = property(&format!("cuguard: {title}"));
        let _ = writeln!(self.text, "title={title}::{}", value(message));
    }

    /// The file, relative to the repository where it is in it.
    fn file(&self, file: &str) -> String {
        let shown = self.paths.shorten(file).into_owned();
        let whole = match std::path::absolute(&shown) {
            Ok(path) => path.to_string_lossy().into_owned(),
            Err(_) => return shown,
        };
        let root = self.root.map(|root| root.trim_end_matches('/'));
        let inside = root.and_then(|root| whole.strip_prefix(root)?.strip_prefix('/'));
        inside.map_or(shown, str::to_owned)
    }
}

/// The line of the program that made the group: that of the innermost frame that a person wrote.
fn place<'a>(group: &'a Group, frames: &'a [Frame]) -> Option<CallSite<'a>> {
    let mut lines = frames.iter().filter(|frame| frame.in_app).filter_map(|f| {
        let symbol = &f.symbol;
        Some((symbol.file.as_deref()?, symbol.line?, symbol.column))
    });
    let site = |site: Site| (site.file, site.line, Some(site.column));
    lines.next().or_else(|| group.origin.site.map(site))
}

fn value(text: &str) -> String {
    let text = text.replace('%', "%25");
    text.replace('\r', "%0D").replace('\n', "%0A")
}

fn property(text: &str) -> String {
    value(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::render;
    use crate::prepare::{Prepared, View};
    use cuguard_registry::{Amount, FailedFreeGroup, Group, Kind, Site, Snapshot, SnapshotReason};

    fn snapshot() -> Snapshot {
        let mut leak = Group::new(Kind::Device, "f32", 2, 4096);
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
        let text = render(&Prepared::new(&snapshot(), View::PLAIN), 20, None);
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
        let prepared = Prepared::new(&snapshot, View::PLAIN);
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
        let stream = Group::new(Kind::Stream, "", 1, 0);
        snapshot.live.push(stream.clone());
        let failed = FailedFreeGroup::new(stream, "cuStreamDestroy", 400, "INVALID");
        snapshot.failed_frees.push(failed);
        snapshot.unrecorded.push((Kind::Pinned, Amount::new(1, 7)));
        let prepared = Prepared::new(&snapshot, View::PLAIN);
        let text = render(&prepared, 20, None);
        assert_eq!(text.matches("::error ").count(), 4, "{text}");
        assert!(text.contains("cuStreamDestroy failed with error 400 INVALID"));
        let text = render(&prepared, 1, None);
        assert_eq!(text.matches("::error ").count(), 3, "{text}");
        assert!(
            text.ends_with("; 1 of 2 groups shown, max=2 shows all\n"),
            "{text}"
        );
        // Nothing that leaked is no annotation.
        let clean = Snapshot::default();
        let text = render(&Prepared::new(&clean, View::PLAIN), 20, None);
        assert_eq!(text, "cuguard: nothing is alive (context 0, in use)\n");
    }
}
