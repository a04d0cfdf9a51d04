//! The report as workflow commands of GitHub Actions: an error at the call site of what is lost, a warning where memory grows.

use std::fmt::Write;

use cuguard_registry::Fate;

use super::prepare::Prepared;
use super::tables::first_user;
use super::text::{line, who};
use crate::github::{property, value};
use crate::size::ByteSize;
use crate::symbols::Frame;
use crate::words::{age, amount_of, count, printable};

/// The annotations, each on a line of its own, and the sum. `root` is the folder of the repository, to which the runner
/// expects relative files.
pub(super) fn render(prepared: &Prepared<'_>, max: usize, root: Option<&str>) -> String {
    let mut text = String::new();
    let lost = prepared.of(Fate::Lost);
    for row in lost.iter().take(max) {
        let title = format!("lost {}", amount_of(row.group.kind, row.group.amount));
        annotate(&mut text, prepared, root, ("error", &title), &row.frames);
    }
    for growing in prepared.growing.iter().take(max) {
        let growth = &growing.growth;
        let rate = ByteSize(growth.bytes_per_second());
        let title = format!("growing +{rate}/s in the last {}", age(growth.over));
        annotate(
            &mut text,
            prepared,
            root,
            ("warning", &title),
            &growing.frames,
        );
    }
    let mut last = format!("cuguard: {}: {}", who(prepared), line(prepared));
    if lost.len() > max {
        let (groups, all) = (count(lost.len() as u64, "group"), lost.len());
        let _ = write!(last, "; {max} of {groups} shown, max={all} shows all");
    }
    text + &last + "\n"
}

fn annotate(
    text: &mut String,
    prepared: &Prepared<'_>,
    root: Option<&str>,
    (command, title): (&str, &str),
    frames: &[Frame],
) {
    let mut message = title.to_owned();
    for frame in frames {
        let _ = write!(message, "\n  {}", printable(&frame.name()));
        if let (Some(file), Some(line)) = (&frame.symbol.file, frame.symbol.line) {
            let file = prepared.paths.shorten(file);
            let _ = write!(message, "  {}:{line}", printable(&file));
        }
    }
    let _ = write!(text, "::{command} ");
    let at = first_user(frames).map(|frame| &frame.symbol);
    if let Some((file, line)) = at.and_then(|at| Some((at.file.as_deref()?, at.line?))) {
        let file = relative(&prepared.paths.shorten(file), root);
        let _ = write!(text, "file={},line={line},", property(&printable(&file)));
    }
    let title = property(&format!("cuguard: {title}"));
    let _ = writeln!(text, "title={title}::{}", value(&message));
}

/// The file, relative to the repository if it is inside.
fn relative(file: &str, root: Option<&str>) -> String {
    let whole = match std::path::absolute(file) {
        Ok(path) => path.to_string_lossy().into_owned(),
        Err(_) => return file.to_owned(),
    };
    let root = root.map(|root| root.trim_end_matches('/'));
    let inside = root.and_then(|root| whole.strip_prefix(root)?.strip_prefix('/'));
    inside.map_or_else(|| file.to_owned(), str::to_owned)
}
