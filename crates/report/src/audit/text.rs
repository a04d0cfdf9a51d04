//! The report as text.

use std::fmt::Write;

use cuguard_registry::{Amount, Fate, Group};

use super::growing::Growing;
pub(super) use super::page::Options;
use super::page::{FEW, Page};
use super::prepare::{FATES, PreparedProcess, is_destroyed_memory, of};
use super::process::{DUMP, Refused};
use crate::paint::Tone;
use crate::phrase::{count, list, list_some, printable, short_command};
use crate::rows::Row;
use crate::size::ByteSize;
use crate::symbols::Frame;
use crate::words::{age, allocated_by, amount_of, description, in_columns, some, sum};

/// How many suppressions that matched nothing are listed.
const UNUSED: usize = 8;

/// Why a report was made that the program asked for.
const REQUESTED: &str = "requested";

/// The sum: `lost 12 MiB in 3 allocations; reachable 2 GiB in 41 allocations and 1 stream`.
pub(super) fn line(prepared: &PreparedProcess<'_>) -> String {
    let mut parts = Vec::new();
    let has_destroyed = prepared.destroyed_memory().count != 0;
    for fate in FATES {
        let what = sum(prepared.amounts(fate));
        match (fate, what.is_empty()) {
            // "Nothing is lost" would be an all-clear.
            (Fate::Lost, true) if is_unsearched(prepared) || has_destroyed => {}
            (Fate::Lost, true) => parts.push("nothing is lost".to_owned()),
            (Fate::DestroyedWithContext, _) if has_destroyed => {}
            (_, true) => {}
            _ => parts.push(format!("{} {what}", word(fate))),
        }
        if fate == Fate::Lost && has_destroyed {
            let what = sum(prepared.amounts(Fate::DestroyedWithContext));
            parts.push(format!(
                "{what} not freed before their context was destroyed"
            ));
        }
    }
    if !prepared.suppressed.is_empty() {
        let what = sum(prepared.suppressed.iter().copied());
        parts.push(format!("suppressed {what}"));
    }
    match prepared.growing.len() as u64 {
        0 => {}
        growing => parts.push(format!("{} growing", count(growing, "call site"))),
    }
    match prepared.refused_count() {
        0 => {}
        refused => {
            let refused = count(refused, "allocation");
            parts.push(format!("{refused} refused for lack of memory"));
        }
    }
    parts.join("; ")
}

/// Whether something is alive, and no address was searched for.
fn is_unsearched(prepared: &PreparedProcess<'_>) -> bool {
    let process = prepared.process;
    let is_live = process.reason == DUMP && process.search.is_none();
    is_live && !prepared.of(Fate::Unclassified).is_empty()
}

pub(super) fn word(fate: Fate) -> &'static str {
    match fate {
        Fate::Lost => "lost",
        Fate::Reachable => "reachable",
        Fate::DestroyedWithContext => "destroyed with their context",
        Fate::FreedLate => "freed after their context was destroyed",
        Fate::Unclassified => "alive",
    }
}

/// `process 4711 (python train.py)`.
pub(super) fn who(prepared: &PreparedProcess<'_>) -> String {
    let process = prepared.process;
    match short_command(&process.command).as_str() {
        "" => format!("process {}", process.pid),
        command => format!("process {} ({command})", process.pid),
    }
}

/// `refused 2 allocations of device memory for lack of memory, the largest of 3 GiB`.
pub(super) fn refusal(refused: &Refused) -> String {
    let what = match refused.kind {
        None => count(refused.count, "allocation"),
        Some(kind) if kind.is_memory() => {
            format!("{} of {kind}", count(refused.count, "allocation"))
        }
        Some(kind) => count(refused.count, &kind.to_string()),
    };
    let size = match (refused.count, refused.largest) {
        (_, None) => String::new(),
        (1, Some(bytes)) => format!(", {}", ByteSize(bytes)),
        (_, Some(bytes)) => format!(", the largest of {}", ByteSize(bytes)),
    };
    format!("refused {what} for lack of memory{size}")
}

/// `growing by 31 MiB in 31 allocations over 31.0 s`.
pub(super) fn rising(growing: &Growing) -> String {
    let amount = Amount::new(growing.rise.blocks, growing.bytes());
    format!(
        "growing by {} over {}",
        in_allocations(amount),
        age(growing.over)
    )
}

/// `31 MiB in 31 allocations`.
fn in_allocations(amount: Amount) -> String {
    let allocations = count(amount.count, "allocation");
    format!("{} in {allocations}", ByteSize(amount.bytes))
}

/// The whole report, with a line break at its end.
pub(super) fn render(prepared: &PreparedProcess<'_>, options: Options) -> String {
    let rows = prepared.folded();
    let mut page = Page {
        text: String::new(),
        prepared,
        rows: &rows,
        options,
    };
    page.header();
    page.where_to_look();
    page.refused();
    page.fate(Fate::Lost);
    page.growing();
    for fate in FATES.into_iter().filter(|fate| *fate != Fate::Lost) {
        page.fate(fate);
    }
    page.tables();
    page.peak();
    page.footer();
    page.text
}

impl Page<'_, '_> {
    fn header(&mut self) {
        let process = &self.prepared.process;
        let has_destroyed = self.prepared.destroyed_memory().count != 0;
        let tone = match self.prepared.of(Fate::Lost).is_empty() {
            true if has_destroyed => Tone::Notice,
            true => Tone::Good,
            false => Tone::Bad,
        };
        let sum = self.paint(tone, &line(self.prepared));
        self.line(format!("cuguard: {}: {sum}", who(self.prepared)));
        let allocated = count(self.prepared.allocated(), "resource");
        let mut second = format!("  {allocated} allocated");
        if !process.duration.is_zero() {
            let _ = write!(second, ", ran for {}", age(process.duration));
        }
        match process.reason.as_str() {
            "" => {}
            REQUESTED => second.push_str(", and still runs: the program asked for this report"),
            DUMP => second.push_str(", and still runs"),
            reason => {
                let _ = write!(second, ", ended by {}", printable(reason));
            }
        }
        let second = self.paint(Tone::Quiet, &second);
        self.line(second);
        if let Some(failure) = &process.failure {
            let (function, code) = (printable(&failure.function), failure.code);
            let what = format!("{function} returned error {code}, and so does every later call:");
            let what = self.paint(Tone::Bad, &what);
            self.line(format!("  {what} what is alive could not be freed"));
        }
        let cut_short = process.search.as_ref().and_then(|it| it.cut_short.as_ref());
        if let Some(why) = cut_short {
            let what = self.paint(Tone::Notice, "the search for addresses was cut short:");
            self.line(format!("  {what} {}", printable(why)));
            self.line("  what was not found is listed as alive, and may be lost");
        }
    }

    /// The largest of each kind of findings, where there are several kinds.
    fn where_to_look(&mut self) {
        let prepared = self.prepared;
        let (refused, growing) = (&prepared.refused, &prepared.growing);
        let lost = of(self.rows, Fate::Lost);
        let kinds = [refused.is_empty(), lost.is_empty(), growing.is_empty()];
        if kinds.iter().filter(|is_empty| !**is_empty).count() < 2 {
            return;
        }
        let mut rows = Vec::new();
        let mut add = |word: &str, what: String, named: Option<&Frame>, all: usize| {
            let (name, location) = match named {
                Some(frame) => self.frame(frame),
                None => ("an unknown call site".to_owned(), String::new()),
            };
            let more = match all - 1 {
                0 => String::new(),
                more => format!(", and {}", count(more as u64, "more group")),
            };
            rows.push((
                format!("  {word:<7}  {what}"),
                format!("{name}  {location}{more}"),
            ));
        };
        if let Some(row) = refused.first() {
            let size = row.refused.largest.map(|bytes| ByteSize(bytes).to_string());
            let what = size.unwrap_or_else(|| "memory".to_owned());
            let named = prepared.names.of(row.refused.origin.stack);
            add("refused", what, named, refused.len());
        }
        if let Some(row) = lost.first() {
            let what = match row.group.kind.is_memory() {
                true => in_allocations(row.group.amount),
                false => what(&row.group),
            };
            let named = prepared.names.of(row.group.origin.stack);
            add("lost", what, named, lost.len());
        }
        if let Some(row) = growing.first() {
            let what = in_allocations(Amount::new(row.rise.blocks, row.bytes()));
            add("growing", what, row.named.as_ref(), growing.len());
        }
        let title = self.paint(Tone::Strong, "where to look:");
        self.line("");
        self.line(title);
        for line in in_columns(&rows, str::to_owned) {
            self.line(line.trim_end());
        }
    }

    fn refused(&mut self) {
        let prepared = self.prepared;
        for row in prepared.refused.iter().take(self.max()) {
            let what = self.paint(Tone::Bad, &refusal(row.refused));
            let function = printable(&row.refused.function).into_owned();
            self.line("");
            self.line(format!("{what}, by {function}"));
            self.folded(&row.frames);
            if self.options.diagnoses {
                for line in row.refused.diagnosis.lines() {
                    self.line(format!("  | {}", printable(line)).trim_end());
                }
            }
        }
        if prepared.refused.len() > self.max() {
            let all = prepared.refused.len();
            let few = format!(
                "… {} of {} shown that the driver refused memory{}",
                self.max(),
                count(all as u64, "call site"),
                self.hint(&format!("max={all} shows all"))
            );
            let few = self.paint(Tone::Quiet, &few);
            self.line("");
            self.line(few);
        }
    }

    /// A word of `LEAK_REPORT` that shows more. `cuguard dump` has no such option, and the process runs already.
    fn hint(&self, word: &str) -> String {
        match self.prepared.process.reason == DUMP {
            true => String::new(),
            false => format!("; {word}"),
        }
    }

    fn fate(&mut self, fate: Fate) {
        let rows = of(self.rows, fate);
        let is_in_tables = fate != Fate::DestroyedWithContext;
        let shown = match fate {
            _ if self.is_listed(fate) => self.max(),
            Fate::Lost | Fate::FreedLate => self.max(),
            Fate::Unclassified if !is_unsearched(self.prepared) => self.max(),
            // Memory comes first. Handles that ended with their context are no finding.
            Fate::DestroyedWithContext => {
                let memory = rows.iter().filter(|row| is_destroyed_memory(row));
                self.max().min(memory.count() + FEW)
            }
            Fate::Unclassified | Fate::Reachable => 0,
        };
        for row in rows.iter().take(shown) {
            self.line("");
            self.row(fate, row);
        }
        if rows.len() > shown {
            let (groups, all) = (count(rows.len() as u64, "group"), rows.len());
            let of_what = match fate {
                Fate::Lost => "lost",
                Fate::Reachable => "reachable",
                Fate::Unclassified => "alive",
                Fate::DestroyedWithContext | Fate::FreedLate => "destroyed",
            };
            let few = match shown {
                0 if is_in_tables && self.has_tables() => {
                    let hint = self.hint(&format!("max={all} shows each"));
                    format!("… {groups} of what is {of_what} in the tables below{hint}")
                }
                shown => {
                    let hint = self.hint(&format!("max={all} shows all"));
                    format!("… {shown} of {groups} shown of what is {of_what}{hint}")
                }
            };
            let few = self.paint(Tone::Quiet, &few);
            self.line("");
            self.line(few);
        }
    }

    fn row(&mut self, fate: Fate, row: &Row<'_>) {
        let group = &row.group;
        let tone = match fate {
            Fate::Lost => Tone::Bad,
            Fate::Unclassified | Fate::DestroyedWithContext | Fate::FreedLate => Tone::Notice,
            Fate::Reachable => Tone::Strong,
        };
        let word = match (fate, group.holder) {
            // Only in host memory that is lost itself.
            (Fate::Lost, Some(_)) => self.paint(tone, "indirectly lost"),
            _ => self.paint(tone, word(fate)),
        };
        let amount = self.paint(Tone::Strong, &what(group));
        let about = description(group.type_name, group.label.as_deref());
        let from = match group.holder {
            Some(holder) => format!(", from {}", printable(holder)),
            None => String::new(),
        };
        self.line(format!("{word} {amount}{about}{from}"));
        self.allocated_by(group);
        self.frames(&row.frames);
    }

    fn allocated_by(&mut self, group: &Group) {
        let mut parts = allocated_by(group);
        if !group.addresses.is_empty() {
            parts.push(some(&group.addresses, |address| format!("{address:#x}")));
        }
        self.line(format!("  {}", parts.join(", ")));
    }

    fn growing(&mut self) {
        let prepared = self.prepared;
        for growing in prepared.growing.iter().take(self.max()) {
            let what = rising(growing);
            let (word, what) = what.split_once(' ').unwrap_or_default();
            let word = self.paint(Tone::Notice, word);
            self.line("");
            self.line(format!("{word} {what}"));
            self.folded(&growing.frames);
        }
    }

    fn footer(&mut self) {
        let prepared = self.prepared;
        let mut lines = Vec::new();
        if !prepared.suppressed.is_empty() {
            let what = sum(prepared.suppressed.iter().copied());
            let groups = count(prepared.suppressed_groups as u64, "group");
            lines.push(format!("suppressed {what} in {groups}"));
        }
        if !prepared.unused.is_empty() {
            let unused = list_some(&prepared.unused, UNUSED, |pattern| {
                printable(pattern).into_owned()
            });
            lines.push(format!("suppressions that matched nothing: {unused}"));
        }
        if !prepared.process.unrecorded.is_empty() {
            let functions = prepared.process.unrecorded.iter().map(|(function, calls)| {
                format!("{} ({})", printable(function), count(*calls, "call"))
            });
            let functions: Vec<_> = functions.collect();
            lines.push(format!(
                "not recorded, and may allocate: {}",
                list(&functions)
            ));
        }
        if let Some(search) = &prepared.process.search {
            let (bytes, time) = (ByteSize(search.bytes), age(search.elapsed));
            let stopped = match prepared.process.reason == DUMP {
                true => ", its threads were stopped meanwhile",
                false => "",
            };
            lines.push(format!(
                "searched {bytes} of the process in {time}{stopped}"
            ));
        }
        if is_unsearched(prepared) {
            lines.push("not searched for lost addresses".to_owned());
        }
        if !lines.is_empty() {
            self.line("");
        }
        for line in lines {
            let line = self.paint(Tone::Quiet, &line);
            self.line(line);
        }
    }
}

/// How much a group has. A reserved range of addresses has a size, which is no memory.
fn what(group: &Group) -> String {
    let what = amount_of(group.kind, group.amount);
    match group.kind.is_memory() || group.amount.bytes == 0 {
        true => what,
        false => format!("{what} of {}", ByteSize(group.amount.bytes)),
    }
}
