//! The leak report as workflow commands of GitHub Actions: an error at the call site of each leak.
//!
//! ```text
//! ::error file=src/main.rs,line=12,col=5,title=cuguard%3A leaked 1 stream::leaked 1 stream%0A…
//! ```
//!
//! The runner reads them from the output of a step, one a line. Values escape percent signs and line breaks,
//! properties also colons and commas.

use std::fmt::Write;

use cuguard_registry::{Group, Site, SnapshotReason};

use crate::paths::Paths;
use crate::phrase::count;
use crate::prepare::Prepared;
use crate::rows::{FailedRow, Row};
use crate::summary::Summary;
use crate::symbols::Frame;
use crate::words::{amount_of, description};

/// The annotations, each on a line of its own, and the sum. `root` is the folder of the repository, to which
/// the runner expects relative files.
pub(crate) fn render(prepared: &Prepared<'_>, max: usize, root: Option<&str>) -> String {
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
        let what = format!("leaked {}", amount_of(*kind, *amount));
        let helps = match prepared.snapshot.sample {
            1 => "level=sites records the call sites",
            _ => "sample=1 records all call sites",
        };
        let why = format!("{what}, counted without a record; {helps}");
        page.error(None, &what, &why);
    }
    let (shown, all) = (prepared.live.len().min(max), prepared.live.len());
    let mut line = Summary::of(prepared).line(&prepared.paths);
    if shown < all {
        let groups = count(all as u64, "group");
        let _ = write!(line, "; {shown} of {groups} shown, max={all} shows all");
    }
    page.text.push_str(&line);
    page.text.push('\n');
    page.text
}

struct Page<'a> {
    text: String,
    paths: &'a Paths,
    root: Option<&'a str>,
}

/// A line of the program: the file, the line and the column.
type Location<'a> = (&'a str, u32, Option<u32>);

impl Page<'_> {
    fn leak(&mut self, row: &Row<'_>) {
        let group = &row.group;
        let title = format!("leaked {}", amount_of(group.kind, group.amount));
        let mut message = title.clone() + &description(group.type_name, group.label.as_deref());
        self.frames(&mut message, &row.frames);
        for indirect in &row.indirect {
            let what = amount_of(indirect.group.kind, indirect.group.amount);
            let _ = write!(message, "\nindirect: {what}, kept by this");
        }
        self.error(location(group, &row.frames), &title, &message);
    }

    fn failed(&mut self, row: &FailedRow<'_>) {
        let failed = &row.failed;
        let what = amount_of(failed.allocated.kind, failed.allocated.amount);
        let title = format!("could not free {what}");
        let mut message = format!(
            "{title}: {} returned error {} {}",
            failed.function, failed.code, failed.code_name
        );
        self.frames(&mut message, &row.allocated);
        self.error(
            location(&failed.allocated, &row.allocated),
            &title,
            &message,
        );
    }

    fn frames(&self, message: &mut String, frames: &[Frame]) {
        for frame in frames.iter().filter(|frame| frame.in_app) {
            let _ = write!(message, "\n  {}", frame.name());
            if let (Some(file), Some(line)) = (&frame.symbol.file, frame.symbol.line) {
                let _ = write!(message, "  {}:{line}", self.paths.shorten(file));
            }
        }
    }

    fn error(&mut self, location: Option<Location<'_>>, title: &str, message: &str) {
        self.text.push_str("::error ");
        if let Some((file, line, column)) = location {
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

    /// The file, relative to the repository if it is inside.
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

/// The line of the innermost frame of the program, or the call site.
fn location<'a>(group: &'a Group, frames: &'a [Frame]) -> Option<Location<'a>> {
    let mut lines = frames.iter().filter(|frame| frame.in_app).filter_map(|f| {
        let symbol = &f.symbol;
        Some((symbol.file.as_deref()?, symbol.line?, symbol.column))
    });
    let site = |site: Site| (site.file, site.line, Some(site.column));
    lines.next().or_else(|| group.origin.site.map(site))
}

pub(crate) fn value(text: &str) -> String {
    let text = text.replace('%', "%25");
    text.replace('\r', "%0D").replace('\n', "%0A")
}

pub(crate) fn property(text: &str) -> String {
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
        assert!(text.contains("cuStreamDestroy returned error 400 INVALID"));
        let text = render(&prepared, 1, None);
        assert_eq!(text.matches("::error ").count(), 3, "{text}");
        assert!(
            text.ends_with("; 1 of 2 groups shown, max=2 shows all\n"),
            "{text}"
        );
        // Nothing that leaked is no annotation.
        let clean = Snapshot::default();
        let text = render(&Prepared::new(&clean, View::PLAIN), 20, None);
        assert_eq!(text, "cuguard: nothing is live (context 0, in use)\n");
    }
}
