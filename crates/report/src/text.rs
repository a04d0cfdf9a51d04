//! The leak report as text.

use std::collections::BTreeSet;
use std::fmt::Write;

use cuguard_registry::{
    Group, PoolUsage, ResourceKind, Site, Snapshot, SnapshotReason, TrackingLevel,
};

use crate::paint::Tone;
use crate::paths::Paths;
use crate::phrase::count;
use crate::prepare::PreparedSnapshot;
use crate::rows::{FailedRow, Row};
use crate::size::ByteSize;
use crate::symbols::Frame;
use crate::words::{
    self, addresses, amount_of, context_end, description, error_code, in_columns, nothing, sum,
    total,
};

/// How the text looks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Look {
    /// How many groups are shown at most.
    pub(crate) max: Option<usize>,
    pub(crate) coloured: bool,
}

/// The whole report, with a line break at its end.
pub(crate) fn render(prepared: &PreparedSnapshot<'_>, look: Look) -> String {
    let mut page = Page {
        text: String::new(),
        look,
        paths: &prepared.paths,
        all_frames: prepared.all_frames,
        build_ids: BTreeSet::new(),
    };
    if prepared.snapshot.info.reason == SnapshotReason::LateDrops {
        page.late_drops(prepared.snapshot);
        return page.text;
    }
    page.header(prepared);
    if !prepared.is_empty() {
        page.totals(prepared.snapshot);
        page.pools(prepared.snapshot);
        page.dropped(prepared);
        page.leaks(prepared);
        page.failed(&prepared.failed);
        page.rest(prepared);
        page.build_ids();
        page.closing(prepared);
    }
    page.text
}

struct Page<'a> {
    text: String,
    look: Look,
    paths: &'a Paths,
    all_frames: bool,
    /// Modules with functions that have no names, and their build ids.
    build_ids: BTreeSet<(String, String)>,
}

impl Page<'_> {
    fn line(&mut self, text: impl AsRef<str>) {
        self.text.push_str(text.as_ref());
        self.text.push('\n');
    }

    fn paint(&self, tone: Tone, text: &str) -> String {
        tone.paint(text, self.look.coloured)
    }

    fn header(&mut self, prepared: &PreparedSnapshot<'_>) {
        let info = &prepared.snapshot.info;
        let end = context_end(info, self.paths);
        if !prepared.is_empty() {
            let what = match info.reason {
                SnapshotReason::Requested => format!("what is live in {info}"),
                SnapshotReason::LeftBehind => format!("what was left behind in {info}"),
                SnapshotReason::KeptOpen => format!("leak report for {info}, {end} by what leaked"),
                _ => format!("leak report for {info}, {end}"),
            };
            let what = self.paint(Tone::Strong, &what);
            self.line(format!("cuguard: {what}"));
            return;
        }
        let nothing = self.paint(Tone::Good, nothing(info.reason));
        let rest = match words::deferred(prepared.snapshot) {
            Some(deferred) => format!("; {deferred}"),
            None => allocated_and_freed(prepared.snapshot),
        };
        self.line(format!("cuguard: {info}, {end}: {nothing}{rest}"));
        self.never_closed(prepared.snapshot);
    }

    /// The one line about a context that has been reported.
    fn late_drops(&mut self, snapshot: &Snapshot) {
        let late = snapshot.late_drops.iter();
        let guards = match total(late.clone().map(|(_, amount)| amount.count)) {
            1 => "1 guard was".to_owned(),
            guards => format!("{guards} guards were"),
        };
        let at = match snapshot.info.closed_at {
            Some(site) => format!(" at {}", self.location(site.file, site.line, None)),
            None => String::new(),
        };
        let word = format!("{guards} dropped after it was closed{at}:");
        let word = self.paint(Tone::Notice, &word);
        let what = sum(late.copied());
        let info = &snapshot.info;
        self.line(format!(
            "cuguard: {info}: {word} {what}; reported above as leaked"
        ));
    }

    fn totals(&mut self, snapshot: &Snapshot) {
        let longest = snapshot
            .totals
            .iter()
            .map(|(kind, _)| kind.to_string().len());
        let width = longest.max().unwrap_or_default().max(24);
        for (kind, totals) in &snapshot.totals {
            let mut line = format!("  {kind:<width$}{:>6} live", totals.count);
            let (bytes, peak) = if kind.is_memory() {
                (
                    ByteSize(totals.bytes).to_string(),
                    format!("   peak {}", ByteSize(totals.peak_bytes)),
                )
            } else {
                (String::new(), String::new())
            };
            let _ = write!(line, "  {bytes:<12}{:>8} allocated{peak}", totals.allocated);
            let line = self.paint(Tone::Quiet, line.trim_end());
            self.line(line);
        }
        if snapshot.info.reason == SnapshotReason::NeverClosed {
            self.line("  this context was never closed");
            self.never_closed(snapshot);
        }
        if snapshot.sample > 1 {
            self.line(format!(
                "  one resource in {} was recorded: figures below are estimates, these are exact",
                snapshot.sample
            ));
        }
        if let Some(broken) = &snapshot.broken {
            let what = self.paint(Tone::Bad, "the device stopped in the middle of its work:");
            self.line(format!("  {what} {}", words::broken(broken)));
            self.line("  every later call returns the same; only a new process helps");
        }
        if let Some(error) = &snapshot.not_released {
            let what = self.paint(Tone::Bad, "the context was not released:");
            self.line(format!("  {what} {}", words::failed_call(error)));
            self.line("  the memory that it costs stays allocated until the process ends");
        }
    }

    /// What pools hold.
    fn pools(&mut self, snapshot: &Snapshot) {
        for pool in snapshot.pools.iter().filter(|pool| pool.held != 0) {
            let line = self.paint(Tone::Quiet, &words::pool(pool));
            self.line(format!("  {line}"));
        }
    }

    /// What a context that is never closed costs. No leak: it may be in a `static`.
    fn never_closed(&mut self, snapshot: &Snapshot) {
        if snapshot.info.reason == SnapshotReason::NeverClosed {
            self.line(
                "  the context itself held device memory until exit: forgotten, or in a static",
            );
        }
    }

    /// Where the context was dropped, if live resources kept it open.
    fn dropped(&mut self, prepared: &PreparedSnapshot<'_>) {
        if prepared.snapshot.info.reason == SnapshotReason::KeptOpen {
            self.line("  the context was dropped by");
            self.origin(None, &prepared.dropped);
        }
    }

    fn leaks(&mut self, prepared: &PreparedSnapshot<'_>) {
        let (word, tone) = match prepared.snapshot.info.reason {
            SnapshotReason::Requested | SnapshotReason::LeftBehind => ("live", Tone::Strong),
            _ => ("leaked", Tone::Bad),
        };
        self.rows(&prepared.live, "", |page, row| {
            page.group(word, tone, prepared.about(&row.group), &row.group);
            page.held(prepared.snapshot, &row.group);
            page.allocated_by(&row.group, &row.frames);
            page.indirect(&row.indirect);
        });
        if !prepared.snapshot.unrecorded.is_empty() {
            self.line("");
            for (kind, amount) in &prepared.snapshot.unrecorded {
                let word = self.paint(tone, word);
                self.line(format!(
                    "{word} {}, counted without a record",
                    amount_of(*kind, *amount)
                ));
            }
            self.line(match prepared.snapshot.sample {
                1 => "  allocated at level counts; level=sites records the call sites",
                _ => "  no sample picked them; sample=1 records all call sites",
            });
        }
    }

    /// The first rows, and a line with the number of all.
    fn rows<T>(&mut self, rows: &[T], of_what: &str, show: impl Fn(&mut Self, &T)) {
        let all = rows.len();
        let shown = self.look.max.unwrap_or(all).min(all);
        for row in &rows[..shown] {
            self.line("");
            show(self, row);
        }
        if shown < all {
            let groups = count(all as u64, "group");
            let few = format!("… {shown} of {groups}{of_what} shown; max={all} shows all");
            self.line("");
            let few = self.paint(Tone::Quiet, &few);
            self.line(few);
        }
    }

    /// What leaked only because the group above did.
    fn indirect(&mut self, rows: &[Row<'_>]) {
        for row in rows {
            // All of them are handles, which have no type.
            let what = amount_of(row.group.kind, row.group.amount);
            let label = description("", row.group.label.as_deref());
            let word = self.paint(Tone::Notice, "indirect:");
            self.line(format!("  {word} {what}{label}, kept by this"));
            self.origin(row.group.origin.site, &row.frames);
        }
    }

    /// The first line of a group: what it is, and how much.
    fn group(&mut self, word: &str, tone: Tone, about: &str, group: &Group) {
        let word = self.paint(tone, word);
        let amount = self.paint(Tone::Strong, &amount_of(group.kind, group.amount));
        self.line(format!(
            "{word} {about}{amount}{}",
            description(group.type_name, group.label.as_deref())
        ));
    }

    /// What the pools of a group hold. The record of a pool has no size: its blocks have records of their own.
    fn held(&mut self, snapshot: &Snapshot, group: &Group) {
        let is_of = |pool: &&PoolUsage| group.addresses.contains(&pool.number);
        let pools = snapshot.pools.iter().filter(is_of);
        let held = total(pools.map(|pool| pool.held));
        if group.kind == ResourceKind::Pool && held != 0 {
            self.line(format!("  holding {} of device memory", ByteSize(held)));
        }
    }

    /// Who allocated it, when, and where.
    fn allocated_by(&mut self, group: &Group, frames: &[Frame]) {
        let parts = words::allocated_by(group);
        self.line(format!("  {}", parts.join(", ")));
        self.origin(group.origin.site, frames);
    }

    /// The frames of the program, or all; the call site alone where there is no stack trace.
    fn origin(&mut self, site: Option<Site>, frames: &[Frame]) {
        const INDENT: &str = "    ";
        let all = self.all_frames;
        let shown = frames.iter().filter(|frame| frame.in_app || all);
        let rows: Vec<_> = shown.map(|f| self.frame(f)).collect();
        // The innermost frame has the line, unless there is no debug information.
        let has_line = |frame: &Frame| frame.in_app && frame.symbol.line.is_some();
        if let Some(site) = site.filter(|_| !frames.iter().any(has_line)) {
            let location = self.paths.site(site);
            self.line(format!("{INDENT}at {location}"));
        }
        for line in in_columns(&rows, |location| self.paint(Tone::Quiet, location)) {
            self.line(format!("{INDENT}{line}"));
        }
    }

    /// The name and the location of a function; without a line the module. The build id of a module with functions without a name, by
    /// which debug information is found, is printed at the end.
    fn frame(&mut self, frame: &Frame) -> (String, String) {
        let symbol = &frame.symbol;
        if let (None, Some(module)) = (&symbol.function, &frame.module)
            && !module.build_id.is_empty()
        {
            let build_id = module.build_id.to_string();
            self.build_ids.insert((module.name().to_owned(), build_id));
        }
        let location = match (&symbol.file, symbol.line, &frame.module) {
            (Some(file), Some(line), _) => self.location(file, line, symbol.column),
            (None, _, Some(module)) if symbol.function.is_some() => module.name().to_owned(),
            _ => String::new(),
        };
        (frame.name().into_owned(), location)
    }

    /// The modules with functions without a name.
    fn build_ids(&mut self) {
        let build_ids = std::mem::take(&mut self.build_ids);
        if !build_ids.is_empty() {
            self.line("");
        }
        for (module, build_id) in build_ids {
            let line = format!("build id of {module}: {build_id}");
            let line = self.paint(Tone::Quiet, &line);
            self.line(line);
        }
    }

    fn location(&self, file: &str, line: u32, column: Option<u32>) -> String {
        let file = self.paths.shorten(file);
        match column {
            Some(column) => format!("{file}:{line}:{column}"),
            None => format!("{file}:{line}"),
        }
    }

    fn failed(&mut self, failed: &[FailedRow<'_>]) {
        self.rows(failed, " of failed frees", |page, row| {
            let (failed, allocated) = (&row.failed, &row.failed.allocated);
            page.group("could not free", Tone::Bad, "", allocated);
            let function = match failed.function {
                "" => "the driver",
                function => function,
            };
            let code = error_code(failed.code, failed.code_name);
            let addresses = addresses(allocated);
            page.line(format!("  {function} returned {code}; {addresses}"));
            page.allocated_by(allocated, &row.allocated);
            if failed.freed.site.is_some() || !row.freed.is_empty() {
                page.line("  was to be freed by");
            }
            page.origin(failed.freed.site, &row.freed);
        });
    }

    fn rest(&mut self, prepared: &PreparedSnapshot<'_>) {
        if let Some(deferred) = words::deferred(prepared.snapshot) {
            let deferred = self.paint(Tone::Notice, &deferred);
            self.line("");
            self.line(deferred);
        }
        let late = &prepared.snapshot.late_drops;
        if !late.is_empty() {
            let word = self.paint(Tone::Notice, "dropped after the context was closed:");
            let what = sum(late.iter().copied());
            self.line("");
            self.line(format!("{word} {what}"));
        }
        self.rows(
            &prepared.escaped,
            " of escaped pointers",
            |page, row: &Row<'_>| {
                page.group("escaped", Tone::Notice, "", &row.group);
                page.line(format!(
                    "  by into_raw, and not taken again by from_raw: {}",
                    addresses(&row.group)
                ));
                page.allocated_by(&row.group, &row.frames);
            },
        );
    }

    fn closing(&mut self, prepared: &PreparedSnapshot<'_>) {
        let snapshot = prepared.snapshot;
        let leaked = sum(prepared.leaked());
        let failed = prepared.failed_count();
        let suppressed = &prepared.suppressed;
        let mut parts = Vec::new();
        if !leaked.is_empty() {
            let groups = prepared.live.len() as u64;
            let groups = match groups {
                0 => String::new(),
                groups => format!(", in {}", count(groups, "group")),
            };
            parts.push(match snapshot.info.reason {
                SnapshotReason::Requested => format!("{leaked} live{groups}"),
                SnapshotReason::LeftBehind => format!("{leaked} left behind{groups}"),
                _ => format!("leaked {leaked}{groups}"),
            });
        }
        if failed != 0 {
            parts.push(format!("{} failed", count(failed, "free")));
        }
        if snapshot.not_released.is_some() {
            parts.push("the context was not released".to_owned());
        }
        let tone = match snapshot.info.reason {
            SnapshotReason::Requested | SnapshotReason::LeftBehind => Tone::Strong,
            _ if parts.is_empty() => Tone::Good,
            _ => Tone::Bad,
        };
        if parts.is_empty() && suppressed.groups == 0 {
            parts.push(nothing(snapshot.info.reason).to_owned());
        }
        if suppressed.groups != 0 {
            let what = sum(suppressed.amounts.iter().copied());
            let groups = count(suppressed.groups, "group");
            parts.push(format!("suppressed {what}, in {groups}"));
        }
        let has_sites = snapshot.level == TrackingLevel::Sites && !prepared.live.is_empty();
        let hint = " (LEAK_REPORT=1,level=stacks also shows the stacks)";
        let hint = words::when(has_sites, hint);
        let text = self.paint(tone, &parts.join("; "));
        self.line("");
        self.line(format!("cuguard: {text}{hint}"));
    }
}

/// How many resources there ever were, for the one line of an empty report.
fn allocated_and_freed(snapshot: &Snapshot) -> String {
    let totals = snapshot.totals.iter();
    match total(totals.map(|(_, totals)| totals.allocated)) {
        0 => String::new(),
        allocated => format!(" ({} allocated and freed)", count(allocated, "resource")),
    }
}
