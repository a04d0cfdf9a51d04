//! The report as workflow commands of GitHub Actions: an error at the call site of what is lost and of what else fails the run,
//! a warning where memory grows or was refused.

use std::fmt::Write;

use cuguard_registry::Fate;

use super::prepare::{Prepared, is_destroyed_memory};
use super::text::{line, refusal, rising, who, word};
use crate::fail_on::FailOn;
use crate::github::{property, value};
use crate::phrase::{count, printable};
use crate::rows::Row;
use crate::symbols::Frame;
use crate::words::amount_of;

/// The annotations, each on a line of its own, and the sum. `root` is the folder of the repository, to which the runner
/// expects relative files.
pub(super) fn render(
    prepared: &Prepared<'_>,
    max: usize,
    fail_on: FailOn,
    root: Option<&str>,
) -> String {
    let mut text = String::new();
    let command = |fails: bool| if fails { "error" } else { "warning" };
    for row in prepared.refused.iter().take(max) {
        let title = refusal(row.refused);
        let kind = (command(fail_on.oom), title.as_str());
        let diagnosis = Some(row.refused.diagnosis.as_str());
        let named = prepared.names.of(row.refused.origin.stack);
        let at = (named, row.frames.as_slice());
        annotate(&mut text, prepared, root, kind, at, diagnosis);
    }
    // What is reachable or was destroyed is not lost, and annotated only where it fails the run.
    let fates = [
        (Fate::Lost, true),
        (Fate::Reachable, fail_on.reachable),
        (Fate::DestroyedWithContext, fail_on.destroyed),
    ];
    let fates = fates.into_iter().filter(|(_, is_shown)| *is_shown);
    let mut not_shown = Vec::new();
    for (fate, _) in fates {
        let is_finding =
            |row: &&Row<'_>| fate != Fate::DestroyedWithContext || is_destroyed_memory(row);
        let rows: Vec<_> = prepared.of(fate).iter().filter(is_finding).collect();
        for row in rows.iter().take(max) {
            let amount = amount_of(row.group.kind, row.group.amount);
            let from = match row.group.holder {
                Some(holder) => format!(", from {}", printable(holder)),
                None => String::new(),
            };
            let title = format!("{} {amount}{from}", word(fate));
            let kind = ("error", title.as_str());
            let named = prepared.names.of(row.group.origin.stack);
            let at = (named, row.frames.as_slice());
            annotate(&mut text, prepared, root, kind, at, None);
        }
        if rows.len() > max {
            let (groups, all) = (count(rows.len() as u64, "group"), rows.len());
            let of_what = word(fate);
            not_shown.push(format!(
                "; {max} of {groups} shown of what is {of_what}, max={all} shows all"
            ));
        }
    }
    for growing in prepared.growing.iter().take(max) {
        let title = rising(growing);
        let kind = (command(fail_on.growth), title.as_str());
        let at = (growing.named.as_ref(), growing.frames.as_slice());
        annotate(&mut text, prepared, root, kind, at, None);
    }
    let last = format!("cuguard: {}: {}", who(prepared), line(prepared));
    text + &last + &not_shown.concat() + "\n"
}

fn annotate(
    text: &mut String,
    prepared: &Prepared<'_>,
    root: Option<&str>,
    (command, title): (&str, &str),
    (named, frames): (Option<&Frame>, &[Frame]),
    more: Option<&str>,
) {
    let mut message = title.to_owned();
    for frame in frames {
        let _ = write!(message, "\n  {}", printable(&frame.name()));
        if let (Some(file), Some(line)) = (&frame.symbol.file, frame.symbol.line) {
            let file = prepared.paths.shorten(file);
            let _ = write!(message, "  {}:{line}", printable(&file));
        }
    }
    for line in more.unwrap_or_default().lines() {
        let _ = write!(message, "\n{}", printable(line));
    }
    let _ = write!(text, "::{command} ");
    let at = named.map(|frame| &frame.symbol);
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
