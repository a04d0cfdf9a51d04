//! A moment as text.

use std::fmt::Write;

use cuguard_report::ByteSize;
use cuguard_report::oom::conclusion;

use super::findings::{Findings, quote};
use super::stacks::{amounts, failed_stack, name, stack_group};
use crate::by::By;
use crate::group::{Group, group};
use crate::look::UNKNOWN;
use crate::look::{Frames, Look};
use crate::naming::SiteNames;
use crate::run::{Mark, MarkKind, Origin, Run};
use crate::stack_text::columns;
use crate::summary::Overview;
use crate::words::{duration, percent};
use cuguard_registry::Amount;
use cuguard_report::phrase::{count, printable};

/// How many call sites are shown of a group that is not a call site itself.
const SITES: usize = 3;

/// A run and a moment of it as text, with a line break at its end. Text of the program has no control characters.
///
/// ```
/// use cuguard_view::{Allocation, At, FOREVER, RecordedKind, Look, Overview, Run, text};
///
/// let device = RecordedKind { name: "device".to_owned(), on_device: true, is_memory: true };
/// let block = Allocation { end: FOREVER, bytes: 512, ..Allocation::default() };
/// let run = Run { kinds: vec![device], allocations: vec![block], ..Run::default() };
/// let text = text(&Overview::new(&run, At::Peak)?, Look::default());
/// assert!(text.contains("512 B in 1 allocation of device memory"));
/// # Ok::<(), cuguard_view::ViewError>(())
/// ```
#[must_use]
pub fn text(overview: &Overview<'_>, look: Look) -> String {
    let mut page = String::new();
    let (title, end) = (title(overview.moment.run), end(overview.moment.run));
    let _ = writeln!(page, "{title}, {end}");
    header(&mut page, overview);
    moment(&mut page, overview, look);
    page
}

/// The same, and before the moment what the whole run shows: what is lost, which call sites grow, and which allocations failed, why.
///
/// ```
/// use cuguard_view::{Allocation, At, FOREVER, Fate, RecordedKind, Look, Overview, Run, text_with_findings};
///
/// let device = RecordedKind { name: "device".to_owned(), on_device: true, is_memory: true };
/// let block = Allocation { end: FOREVER, bytes: 512, fate: Fate::Lost, ..Allocation::default() };
/// let run = Run { kinds: vec![device], allocations: vec![block], pid: 42, ..Run::default() };
/// let text = text_with_findings(&Overview::new(&run, At::Peak)?, Look::default());
/// assert!(text.starts_with("cuguard: process 42: lost 512 B in 1 allocation\n"));
/// # Ok::<(), cuguard_view::ViewError>(())
/// ```
#[must_use]
pub fn text_with_findings(overview: &Overview<'_>, look: Look) -> String {
    let mut page = String::new();
    let run = overview.moment.run;
    let findings = Findings::of(run, look.frames);
    let _ = writeln!(page, "{}: {}", title(run), findings.line(overview));
    let _ = writeln!(page, "  {}", end(run));
    header(&mut page, overview);
    findings.write(&mut page, look);
    moment(&mut page, overview, look);
    page
}

/// The findings of a run in one line, without a line break: for several runs side by side.
///
/// ```
/// use cuguard_view::{At, Overview, Run, findings_line};
///
/// let run = Run { pid: 42, ..Run::default() };
/// assert_eq!(findings_line(&Overview::new(&run, At::Peak)?), "process 42: nothing was allocated");
/// # Ok::<(), cuguard_view::ViewError>(())
/// ```
#[must_use]
pub fn findings_line(overview: &Overview<'_>) -> String {
    let run = overview.moment.run;
    let findings = Findings::of(run, Frames::Program);
    format!("{}: {}", printable(&run.title()), findings.line(overview))
}

/// What was alive at the moment.
fn moment(page: &mut String, overview: &Overview<'_>, look: Look) {
    let run = overview.moment.run;
    if let Some(mark) = overview.moment.out_of_memory() {
        failed_request(page, run, mark, look.frames);
    }
    let alive = match overview.moment.alive.len() {
        0 => "nothing".to_owned(),
        _ => amounts(run, &by_kind(overview)),
    };
    let verb = match overview.moment.ended_unfreed().count {
        0 => "alive",
        _ => "not freed",
    };
    let _ = writeln!(page, "\n{verb} {}: {alive}", overview.moment.words());
    let groups = group(&overview.moment, look.by, look.frames);
    let names = SiteNames::of(run);
    let shown = look.top.unwrap_or(groups.len()).min(groups.len());
    for group in &groups[..shown] {
        page.push('\n');
        match look.by {
            By::Stack => {
                let share = share(overview, group);
                stack_group(page, run, group, &share, look.frames);
            }
            _ => named_group(page, overview, &names, group, look.by),
        }
    }
    if shown < groups.len() {
        let all = groups.len();
        let rest: Amount = groups[shown..].iter().map(|group| group.amount).sum();
        let rest = format!("{} in {}", ByteSize(rest.bytes), rest.count);
        let _ = writeln!(
            page,
            "\n… {shown} of {all} groups shown; --top {all} shows the other {rest} too"
        );
    }
    for problem in &run.problems {
        let _ = writeln!(page, "\nnote: {}", printable(problem));
    }
    let why = match run.origin {
        Origin::Program => return,
        Origin::Recording => ": it is of an older version",
        Origin::Context => "",
    };
    let _ = writeln!(page, "\nnote: times count from {}{why}", run.origin.words());
}

/// `cuguard: rank 3 on node7 (python train.py)`.
fn title(run: &Run) -> String {
    let command = match run.command.as_str() {
        "" => String::new(),
        command => format!(" ({})", printable(command)),
    };
    format!("cuguard: {}{command}", printable(&run.title()))
}

fn end(run: &Run) -> String {
    let end = match (run.exited, run.is_report) {
        (true, _) => "exited",
        // That of `cuguard dump`, or of a context.
        (false, true) => "the report was made",
        (false, false) => "no exit was recorded; last event",
    };
    format!("{end} after {}", duration(run.end))
}

fn header(page: &mut String, overview: &Overview<'_>) {
    let run = overview.moment.run;
    for caveat in run.caveats() {
        let _ = writeln!(page, "  {caveat}");
    }
    let peak = overview.peak;
    let (what, bytes) = match peak.device_bytes {
        0 => ("host memory", peak.bytes),
        bytes => ("device memory", bytes),
    };
    let at_end = match peak.device_bytes {
        0 => overview.at_end.bytes,
        _ => overview.device_bytes_at_end,
    };
    if run.is_report {
        let _ = writeln!(page, "  {what}: at the end {}", ByteSize(at_end));
    } else {
        let _ = writeln!(
            page,
            "  {what}: peak {} after {}, at the end {}",
            ByteSize(bytes),
            duration(peak.time),
            ByteSize(at_end),
        );
        let allocated = overview.allocated;
        let _ = write!(
            page,
            "  allocated {} in {}",
            ByteSize(allocated.bytes),
            count(allocated.count, "resource"),
        );
        match overview.out_of_memory {
            0 => page.push('\n'),
            errors => {
                let _ = writeln!(page, "; {}", count(errors, "out-of-memory error"));
            }
        }
    }
    let leaked = overview.leaked;
    if leaked.count != 0 {
        let _ = writeln!(
            page,
            "  not freed before their context ended: {} in {}",
            ByteSize(leaked.bytes),
            count(leaked.count, "resource"),
        );
    }
}

/// The allocation that failed: `failed: an allocation of 1 GiB, after 8.21 s, thread main`, its stack trace and why it failed.
fn failed_request(page: &mut String, run: &Run, mark: &Mark, frames: Frames) {
    let MarkKind::OutOfMemory {
        bytes,
        site,
        thread,
        ref diagnosis,
    } = mark.kind
    else {
        return;
    };
    let thread = match name(run, thread) {
        "" => String::new(),
        thread => format!(", thread {}", printable(thread)),
    };
    let of = match bytes {
        0 => String::new(),
        bytes => format!(" of {}", ByteSize(bytes)),
    };
    let after = duration(mark.time);
    let _ = writeln!(page, "\nfailed: an allocation{of}, after {after}{thread}");
    failed_stack(page, run, site, frames);
    if !diagnosis.is_empty() {
        // What comes before is the request, and its stack trace once more.
        let from = diagnosis.find(conclusion(diagnosis)).unwrap_or(0);
        quote(page, &diagnosis[from..]);
    }
}

fn by_kind(overview: &Overview<'_>) -> Vec<(u8, Amount)> {
    let mut kinds: Vec<_> = group(&overview.moment, By::Kind, Frames::Program)
        .into_iter()
        .flat_map(|group| group.kinds)
        .collect();
    kinds.sort_by_key(|(kind, _)| *kind);
    kinds
}

fn share(overview: &Overview<'_>, group: &Group) -> String {
    match group.amount.bytes {
        0 => String::new(),
        bytes => format!("   {}", percent(bytes, overview.moment.total.bytes)),
    }
}

/// A group that is not a call site: its name, and its largest call sites.
fn named_group(
    page: &mut String,
    overview: &Overview<'_>,
    names: &SiteNames<'_>,
    group: &Group,
    by: By,
) {
    let run = overview.moment.run;
    let name = match by {
        By::Label if !group.labels.is_empty() => format!("{:?}", group.name),
        _ => printable(&group.name).into_owned(),
    };
    let amounts = amounts(run, &group.kinds);
    let inclusive = match group.inclusive == group.amount {
        true => String::new(),
        false => format!("; {} with what it calls", ByteSize(group.inclusive.bytes)),
    };
    let _ = writeln!(
        page,
        "{name}: {amounts}{inclusive}{}",
        share(overview, group)
    );
    for (site, amount) in group.sites.iter().take(SITES) {
        let place = names
            .frame(*site)
            .map(columns)
            .unwrap_or_else(|| (UNKNOWN.to_owned(), String::new()));
        let amount = match amount.bytes {
            0 => amount.count.to_string(),
            bytes => ByteSize(bytes).to_string(),
        };
        let line = format!("{amount:>12}  {}  {}", place.0, place.1);
        let _ = writeln!(page, "{}", line.trim_end());
    }
    if let Some(more) = group.sites.len().checked_sub(SITES + 1) {
        let _ = writeln!(
            page,
            "{:>12}  {}",
            "…",
            count(more as u64 + 1, "more call site")
        );
    }
}
