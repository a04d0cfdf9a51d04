//! The report as workflow commands of GitHub Actions: an error at the call site of what is lost and of what else fails the run,
//! a warning where memory grows or was refused.

use std::fmt::Write;

use cuguard_registry::Fate;

use super::prepare::{PreparedProcess, is_destroyed_memory};
use super::text::{line, refusal, rising, who, word};
use crate::annotations::Annotations;
use crate::fail_on::FailOn;
use crate::phrase::{count, printable};
use crate::rows::Row;
use crate::symbols::Frame;
use crate::words::amount_of;

/// The annotations, each on a line of its own, and the sum. `root` is the folder of the repository, to which the runner
/// expects relative files.
pub(super) fn render(
    prepared: &PreparedProcess<'_>,
    max: usize,
    fail_on: FailOn,
    root: Option<&str>,
) -> String {
    let mut page = Annotations::new(&prepared.paths, root);
    let command = |fails: bool| if fails { "error" } else { "warning" };
    for row in prepared.refused.iter().take(max) {
        let title = refusal(row.refused);
        let kind = (command(fail_on.oom), title.as_str());
        let named = prepared.names.of(row.refused.origin.stack);
        let at = (named, row.frames.as_slice());
        annotate(&mut page, kind, at, &row.refused.diagnosis);
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
            annotate(&mut page, kind, at, "");
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
        annotate(&mut page, kind, at, "");
    }
    let last = format!("cuguard: {}: {}", who(prepared), line(prepared));
    page.finish(&(last + &not_shown.concat()))
}

/// An annotation at the line of `named`: the title, the stack trace and `more`.
fn annotate(
    page: &mut Annotations<'_>,
    (command, title): (&str, &str),
    (named, frames): (Option<&Frame>, &[Frame]),
    more: &str,
) {
    let mut message = title.to_owned();
    page.frames(&mut message, frames);
    for line in more.lines() {
        let _ = write!(message, "\n{}", printable(line));
    }
    let symbol = named.map(|frame| &frame.symbol);
    let location = symbol.and_then(|at| Some((at.file.as_deref()?, at.line?, None)));
    page.add(command, location, title, &message);
}
