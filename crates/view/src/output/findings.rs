//! What a report begins with: which allocations failed and why, what is lost, what grows. In the order and the words of `cuguard run`.

use std::collections::HashMap;
use std::fmt::Write;
use std::ops::RangeInclusive;

use cuguard_report::oom::conclusion;
use cuguard_report::phrase::{count, list, printable};
use cuguard_report::{ByteSize, phrase};

use super::stacks::{failed_stack, stack_group};
use crate::by::By;
use crate::group::group;
use crate::growth::{GrowingSite, growing_sites};
use crate::look::{Frames, Look};
use crate::moment::{At, at_time};
use crate::run::{Allocation, FOREVER, Fate, Frame, MarkKind, Run};
use crate::stack_text::stack;
use crate::summary::Overview;
use crate::words::{duration, kind, some};
use cuguard_registry::Amount;

/// The findings of a run.
pub(super) struct Findings<'r> {
    run: &'r Run,
    failures: Vec<Failures<'r>>,
    growing: Vec<GrowingSite>,
    frames: Frames,
}

/// Allocations of one call site that failed.
struct Failures<'r> {
    site: u32,
    count: u64,
    /// Where it is known.
    bytes: Option<RangeInclusive<u64>>,
    times: RangeInclusive<u64>,
    threads: Vec<&'r str>,
    /// The first that is recorded, and the number of its failure, from 1, as `--at oom:N` has it.
    diagnosis: Option<(usize, &'r str)>,
}

impl<'r> Findings<'r> {
    pub(super) fn of(run: &'r Run, frames: Frames) -> Self {
        Self {
            run,
            failures: failures(run, frames),
            growing: growing_sites(run),
            frames,
        }
    }

    /// The sum: `lost 6 MiB in 2 allocations; reachable 680 MiB in 553 allocations and 1 context; 1 call site growing`.
    pub(super) fn line(&self, overview: &Overview<'_>) -> String {
        let run = self.run;
        let mut parts = Vec::new();
        let ended = sum(run, |one| one.leaked);
        if !ended.is_empty() {
            parts.push(format!("{ended} not freed before their context ended"));
        }
        let of = |fate| sum(run, move |one| one.end == FOREVER && one.fate == fate);
        let [lost, reachable, unknown] = [Fate::Lost, Fate::Reachable, Fate::Unknown].map(of);
        match (lost.is_empty(), reachable.is_empty()) {
            (true, true) => {}
            (true, false) => parts.push("nothing is lost".to_owned()),
            (false, _) => parts.push(format!("lost {lost}")),
        }
        if !reachable.is_empty() {
            parts.push(format!("reachable {reachable}"));
        }
        if !unknown.is_empty() {
            parts.push(format!("{unknown} {}", alive_when(run)));
        }
        if parts.is_empty() {
            parts.push(match overview.allocated.count {
                0 if run.is_report => "the leak report lists nothing".to_owned(),
                0 => "nothing was allocated".to_owned(),
                _ => "everything was freed".to_owned(),
            });
        }
        if !self.growing.is_empty() {
            let growing = count(self.growing.len() as u64, "call site");
            parts.push(format!("{growing} growing"));
        }
        if overview.out_of_memory != 0 {
            let failed = count(overview.out_of_memory, "allocation");
            parts.push(format!("{failed} failed for lack of memory"));
        }
        parts.join("; ")
    }

    /// The findings with their stack traces, each after an empty line.
    pub(super) fn write(&self, page: &mut String, look: Look) {
        let most = look.top.unwrap_or(usize::MAX);
        for failures in self.failures.iter().take(most) {
            self.failed(page, failures);
        }
        self.not_shown(page, self.failures.len(), most, "where allocations failed");
        self.not_freed(page, most, "lost", "of what is lost", |one| {
            one.fate == Fate::Lost
        });
        let what = "of what was not freed before its context ended";
        self.not_freed(page, most, "not freed", what, |one| one.leaked);
        for growing in self.growing.iter().take(most) {
            let _ = writeln!(
                page,
                "\ngrowing by {} in {} over {}",
                ByteSize(growing.to.saturating_sub(growing.from)),
                count(growing.blocks, "allocation"),
                duration(growing.end.saturating_sub(growing.begin)),
            );
            stack(page, &growing.call_site, self.frames);
        }
        self.not_shown(page, self.growing.len(), most, "that grow");
        let is_unknown = |one: &Allocation| one.end == FOREVER && one.fate == Fate::Unknown;
        if self.run.allocations.iter().any(is_unknown) && !self.run.is_report {
            let _ = writeln!(
                page,
                "\nIt is not known which of what is {} is lost: `cuguard run` searches for lost memory when a process exits.",
                alive_when(self.run)
            );
        }
    }

    /// Call sites of what was not freed.
    fn not_freed(
        &self,
        page: &mut String,
        most: usize,
        word: &str,
        what: &str,
        counts: impl Fn(&Allocation) -> bool,
    ) {
        let mut moment = at_time(self.run, At::Exit, self.run.end);
        let allocations = &self.run.allocations;
        moment
            .alive
            .retain(|index| counts(&allocations[*index as usize]));
        let groups = group(&moment, By::Stack, self.frames);
        for group in groups.iter().take(most) {
            let _ = write!(page, "\n{word} ");
            stack_group(page, self.run, group, "", self.frames);
        }
        self.not_shown(page, groups.len(), most, what);
    }

    fn failed(&self, page: &mut String, failures: &Failures<'_>) {
        let range = |range: &RangeInclusive<u64>, word: fn(u64) -> String| {
            let (from, to) = (word(*range.start()), word(*range.end()));
            if from == to {
                from
            } else {
                format!("{from} to {to}")
            }
        };
        let bytes = failures.bytes.as_ref();
        let bytes = bytes.map(|bytes| range(bytes, |bytes| ByteSize(bytes).to_string()));
        let of = bytes.map_or_else(String::new, |bytes| format!(" of {bytes}"));
        let what = match failures.count {
            1 => "an allocation".to_owned(),
            many => count(many, "allocation"),
        };
        let threads = some(&failures.threads, |thread| printable(thread).into_owned());
        let threads = match failures.threads.len() {
            0 => String::new(),
            1 => format!(", thread {threads}"),
            _ => format!(", threads {threads}"),
        };
        let after = range(&failures.times, duration);
        let _ = writeln!(page, "\nfailed: {what}{of}, after {after}{threads}");
        failed_stack(page, self.run, failures.site, self.frames);
        if let Some((number, diagnosis)) = failures.diagnosis {
            quote(page, conclusion(diagnosis));
            let _ = writeln!(page, "  | (--at oom:{number} shows where the memory was)");
        }
    }

    fn not_shown(&self, page: &mut String, all: usize, most: usize, what: &str) {
        if all > most {
            let _ = writeln!(
                page,
                "\n… {most} of {} shown {what}; --top {all} shows all",
                count(all as u64, "call site")
            );
        }
    }
}

/// When what was not freed was alive.
fn alive_when(run: &Run) -> &'static str {
    match (run.is_report, run.exited) {
        (true, _) => "live in the leak report",
        (false, true) => "alive at exit",
        (false, false) => "alive at the end of the recording",
    }
}

/// Lines of text of the program.
pub(super) fn quote(page: &mut String, text: &str) {
    for line in text.lines() {
        let line = format!("  | {}", printable(line));
        let _ = writeln!(page, "{}", line.trim_end());
    }
}

/// `680 MiB in 553 allocations and 1 context`; empty for nothing.
fn sum(run: &Run, counts: impl Fn(&Allocation) -> bool) -> String {
    let mut kinds = vec![Amount::default(); run.kinds.len()];
    for allocation in run.allocations.iter().filter(|one| counts(one)) {
        if let Some(sum) = kinds.get_mut(usize::from(allocation.kind)) {
            *sum += run.amount(allocation);
        }
    }
    let of_memory = run.kinds.iter().zip(&kinds);
    let (memory, handles): (Vec<_>, Vec<_>) = of_memory
        .filter(|(_, amount)| amount.count != 0)
        .partition(|(kind, _)| kind.is_memory);
    let memory: Amount = memory.into_iter().map(|(_, amount)| *amount).sum();
    let mut parts = Vec::new();
    if memory.count != 0 {
        let allocations = count(memory.count, "allocation");
        parts.push(format!("{} in {allocations}", ByteSize(memory.bytes)));
    }
    parts.extend(
        handles
            .into_iter()
            .map(|(one, amount)| phrase::count(amount.count, &kind(&one.name))),
    );
    list(&parts)
}

/// Failed allocations by what is shown of their call sites, in the order of the first of each.
fn failures(run: &Run, frames: Frames) -> Vec<Failures<'_>> {
    let mut all: Vec<Failures<'_>> = Vec::new();
    let mut known: HashMap<Vec<&Frame>, usize> = HashMap::new();
    let failed = run.marks.iter().filter_map(|mark| match &mark.kind {
        MarkKind::OutOfMemory {
            bytes,
            site,
            thread,
            diagnosis,
        } => Some((mark.time, *bytes, *site, *thread, diagnosis.as_str())),
        _ => None,
    });
    for (number, (time, bytes, site, thread, diagnosis)) in (1..).zip(failed) {
        let shown = run.sites.get(site as usize);
        let shown = shown.map_or_else(Vec::new, |site| site.shown(frames).collect());
        let index = *known.entry(shown).or_insert_with(|| {
            all.push(Failures {
                site,
                count: 0,
                bytes: None,
                times: time..=time,
                threads: Vec::new(),
                diagnosis: None,
            });
            all.len() - 1
        });
        let failures = &mut all[index];
        failures.count += 1;
        failures.times = *failures.times.start()..=time;
        if bytes != 0 {
            let (least, most) = match &failures.bytes {
                Some(range) => (*range.start(), *range.end()),
                None => (bytes, bytes),
            };
            failures.bytes = Some(least.min(bytes)..=most.max(bytes));
        }
        let thread = run.names.get(thread as usize).map_or("", String::as_str);
        if !thread.is_empty() && !failures.threads.contains(&thread) {
            failures.threads.push(thread);
        }
        if failures.diagnosis.is_none() && !diagnosis.is_empty() {
            failures.diagnosis = Some((number, diagnosis));
        }
    }
    all
}
