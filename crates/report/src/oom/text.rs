//! The diagnosis as text: one line, or a page.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::{self, Write};

use super::facts::{OutOfMemory, RecoveryStep, is_page_locked};
use super::others::{PoolUse, Processes};
use crate::audit::user_frames;
use crate::frames::mark;
use crate::paths::Paths;
use crate::phrase::count;
use crate::site_frame::site_frames;
use crate::size::ByteSize;
use crate::symbols::{Frame, Symbols};
use crate::words::{amount_of, description, when};
use cuguard_registry::{Group, ResourceKind, TrackingLevel};

/// How many call sites are shown.
const CALL_SITES: usize = 8;

/// How many frames are shown of the request's stack trace.
const FRAMES: usize = 16;

impl std::error::Error for OutOfMemory {}

/// One line: what failed, and the causes in short. `{:#}` is the whole report.
impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if f.alternate() {
            // Without the last line break, as for any `Display`.
            return f.write_str(self.to_text().trim_end());
        }
        f.write_str(self.request.operation)?;
        if let Some(bytes) = self.request.bytes {
            write!(f, " of {}", ByteSize(bytes))?;
        }
        match self.request.host_kind() {
            Some(kind) => write!(f, " of {kind}")?,
            None => write!(f, " on device {}", self.info.device)?,
        }
        write!(f, ": {}: ", self.refused())?;
        let causes = self.causes();
        if causes.is_empty() {
            return f.write_str("out of memory, and nothing that is known explains it");
        }
        let words: Vec<_> = causes.iter().map(|cause| self.short(cause)).collect();
        // Causes contain commas.
        f.write_str(&words.join("; "))
    }
}

impl OutOfMemory {
    /// The whole report: the causes and what helps, then the numbers behind them.
    ///
    /// ```
    /// let mut why = cuguard::oom::OutOfMemory::default();
    /// (why.request.bytes, why.total) = (Some(3 << 30), Some(2 << 30));
    /// assert!(why.to_text().contains("larger than the device"));
    /// ```
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut page = Page {
            text: String::new(),
            paths: Paths::new(),
            symbols: RefCell::default(),
            callers: HashMap::new(),
            why: self,
        };
        page.find_callers();
        page.head();
        page.causes();
        page.memory();
        page.call_sites();
        page.recovery();
        page.text
    }

    /// Whose records these are, before an amount.
    fn this(&self) -> &'static str {
        match self.settings.audited {
            true => "this process",
            false => "this context",
        }
    }

    fn refused(&self) -> String {
        match self.request.function {
            None if self
                .limit
                .is_some_and(|limit| limit.refused && limit.of_pool) =>
            {
                "the limit of its pool refused it".to_owned()
            }
            None if self.limit.is_some_and(|limit| limit.refused) => {
                "the memory limit of its context refused it".to_owned()
            }
            None if self.request.kind == Some(ResourceKind::GraphMemory) => {
                "not launched, because its memory does not fit".to_owned()
            }
            None => "it was refused".to_owned(),
            Some(function) => format!(
                "{function} returned {} ({})",
                self.request.code_name, self.request.code
            ),
        }
    }
}

/// Of a diagnosis as text, why the allocation failed and what helps; all of it where it has no such part.
///
/// ```
/// use cuguard_report::oom::{OutOfMemory, conclusion};
///
/// let text = OutOfMemory::default().to_text();
/// assert!(conclusion(&text).starts_with("why: ") && conclusion(&text).len() < text.len());
/// assert_eq!(conclusion("no memory"), "no memory");
/// ```
#[must_use]
pub fn conclusion(diagnosis: &str) -> &str {
    let mut parts = diagnosis.split("\n\n");
    parts
        .find(|part| part.starts_with("why: "))
        .unwrap_or(diagnosis)
}

/// Replaces control characters: names of other processes must not move the cursor of a terminal.
pub(super) fn plain(text: &str) -> String {
    text.replace(char::is_control, "\u{fffd}")
}

/// How much a pool has, and uses.
pub(super) fn pool_line(pool: &PoolUse) -> String {
    let (reserved, used) = (ByteSize(pool.reserved), ByteSize(pool.used));
    format!("{}: {reserved} reserved, {used} in use", plain(&pool.name))
}

/// The report that is being written.
pub(super) struct Page<'a> {
    text: String,
    pub(super) paths: Paths,
    symbols: RefCell<Symbols>,
    /// Of call sites in allocation helpers: the frame that tells them apart.
    callers: HashMap<&'static [usize], Frame>,
    pub(super) why: &'a OutOfMemory,
}

impl Page<'_> {
    fn line(&mut self, line: impl AsRef<str>) {
        self.text.push_str(line.as_ref().trim_end());
        self.text.push('\n');
    }

    fn row(&mut self, name: &str, what: impl AsRef<str>) {
        self.line(format!("  {name:<18}{}", what.as_ref()));
    }

    /// What a group is, and where it was allocated, to follow its amount.
    pub(super) fn origin(&self, group: &Group) -> String {
        let mut text = description(group.type_name, group.label.as_deref());
        if let Some(site) = group.origin.site {
            let _ = write!(text, " at {}", self.paths.site(site));
        } else if let Some(frame) = self.frames(group.origin.stack).first() {
            let _ = write!(text, " by {}", self.frame(frame));
        }
        if let Some(caller) = self.callers.get(group.origin.stack) {
            let _ = write!(text, ", for {}", self.frame(caller));
        }
        text
    }

    /// Looks allocation helpers through.
    fn find_callers(&mut self) {
        let sites = self.why.call_sites.iter();
        let stacks: Vec<_> = sites.map(|usage| usage.group.origin.stack).collect();
        let frames: Vec<Vec<Frame>> = stacks.iter().map(|stack| self.frames(stack)).collect();
        let all: Vec<Vec<&Frame>> = frames
            .iter()
            .map(|frames| frames.iter().collect())
            .collect();
        let callers = site_frames(&all).into_iter().zip(&frames).zip(stacks);
        let callers = callers.filter(|((at, _), _)| *at != 0);
        let callers =
            callers.filter_map(|((at, frames), stack)| Some((stack, frames.get(at)?.clone())));
        self.callers = callers.collect();
    }

    /// The frames of the program in a stack trace, innermost first.
    fn frames(&self, stack: &[usize]) -> Vec<Frame> {
        let mut frames = self.symbols.borrow_mut().frames(stack, false);
        mark(&mut frames);
        match self.why.settings.audited {
            true => user_frames(&mut frames),
            false => frames.retain(|frame| frame.in_app),
        }
        frames
    }

    /// A function with its line, or its library.
    fn frame(&self, frame: &Frame) -> String {
        let mut text = plain(&frame.name());
        if let Some(file) = &frame.symbol.file {
            let file = self.paths.shorten(file);
            let line = frame.symbol.line.unwrap_or(0);
            let _ = write!(text, " at {}:{line}", plain(&file));
        } else if let (Some(_), Some(module)) = (&frame.symbol.function, &frame.module) {
            let _ = write!(text, " in {}", plain(module.name()));
        }
        text
    }

    fn head(&mut self) {
        let request = &self.why.request;
        let bytes = request
            .bytes
            .map_or("memory".to_owned(), |b| ByteSize(b).to_string());
        let info = &self.why.info;
        let mut at = match info.context {
            // Of a program without guards, or a context that could not be created.
            0 => match info.device_name.as_str() {
                "" => format!("on device {}", info.device),
                name => format!("on device {}, {name}", info.device),
            },
            _ => format!("in {info}"),
        };
        if let Some(kind) = request.host_kind() {
            at = match info.context {
                0 => format!("of {kind}"),
                _ => format!("of {kind} {at}"),
            };
        }
        self.line(format!(
            "cuguard: out of memory: {} requested {bytes} {at}",
            request.operation
        ));
        let mut by = String::from("  ");
        if let Some(site) = request.site {
            let _ = write!(by, "at {}, ", self.paths.site(site));
        }
        if let Some(thread) = &request.thread {
            let _ = write!(by, "thread {}, ", plain(thread));
        }
        self.line(format!("{by}{}", self.why.refused()));
        for (number, frame) in self.frames(request.stack).iter().take(FRAMES).enumerate() {
            self.line(format!("    #{number} {}", self.frame(frame)));
        }
    }

    fn causes(&mut self) {
        let causes = self.why.causes();
        self.line("");
        if causes.is_empty() {
            self.line("why: nothing that is known explains it");
            if self.why.request.bytes.is_none() {
                self.line("     only the driver knows how much was requested");
            }
        }
        for (index, cause) in causes.iter().enumerate() {
            let word = if index == 0 { "why: " } else { "and: " };
            self.line(format!("{word}{}", self.why.short(cause)));
            for detail in self.details(cause, &causes) {
                self.line(format!("     {detail}"));
            }
        }
        let advice = self.why.advice();
        if !advice.is_empty() {
            self.line("what helps:");
            advice
                .iter()
                .for_each(|one| self.line(format!("  - {one}")));
        }
    }

    fn memory(&mut self) {
        let why = self.why;
        self.line("");
        self.line("where the memory is:");
        let size =
            |bytes: Option<u64>| bytes.map_or("unknown".to_owned(), |b| ByteSize(b).to_string());
        if why.request.is_host_memory() {
            return self.host_memory();
        }
        let mut device = format!("{}, {} free", size(why.total), size(why.free));
        if let Some(largest) = why.largest {
            let _ = write!(
                device,
                "; the largest block that can be allocated: {}",
                ByteSize(largest)
            );
        }
        self.row("device", device);
        if let Some(limit) = why.limit {
            let (bytes, held) = (ByteSize(limit.bytes), ByteSize(limit.held));
            match limit.of_pool {
                true => self.row("pool's limit", format!("{bytes}, {held} held")),
                false => self.row("memory limit", format!("{bytes}, {held} in use")),
            }
        }
        let this = why.this();
        let outside_of = match why.settings.audited {
            true => "not recorded",
            false => "outside guards",
        };
        for usage in &why.usage {
            let mut what = amount_of(usage.kind, usage.amount);
            if usage.kind == ResourceKind::Device
                && let Some(pages) = why.pages
            {
                let _ = write!(what, "; takes {} in pages", ByteSize(pages.taken()));
            }
            if usage.kind == ResourceKind::Device && why.own_pages_are_unknown() {
                let reason = why.pages_reason();
                let _ = write!(what, "; how it lies in pages is unknown{reason}");
            }
            self.row(this, what);
        }
        // A context that could not be created has no number.
        if why.usage.is_empty() && why.info.context != 0 {
            self.row(this, "nothing");
        }
        for escaped in &why.escaped {
            let what = amount_of(escaped.kind, escaped.amount);
            self.row(
                "escaped",
                format!("{what}, released with into_raw; its owner may have freed it"),
            );
        }
        for pool in &why.pools {
            self.row("pool", pool_line(pool));
        }
        let graphs = &why.graphs;
        if graphs.reserved != 0 {
            let (reserved, used) = (ByteSize(graphs.reserved), ByteSize(graphs.used));
            let mut what = format!("{reserved} reserved, {used} in use or kept for launches");
            if graphs.lost() != 0 {
                let lost = ByteSize(graphs.lost());
                let _ = write!(what, ", {lost} lost until the process ends");
            }
            self.row("graphs", what);
        }
        for context in &why.contexts {
            let (number, bytes) = (context.number, ByteSize(context.bytes));
            let mut what = format!("context {number}: its guards hold {bytes}");
            let plain = context.bytes.saturating_sub(context.pooled);
            if let Some(taken) = context.taken.filter(|taken| *taken > plain) {
                let taken = taken.saturating_add(context.pooled);
                let _ = write!(what, "; takes {} in pages", ByteSize(taken));
            }
            let escaped = context.escaped.saturating_add(context.pooled_escaped);
            if escaped != 0 {
                let _ = write!(what, "; released {} with into_raw", ByteSize(escaped));
            }
            if context.managed != 0 {
                let _ = write!(what, "; {} of managed memory", ByteSize(context.managed));
            }
            self.row("other contexts", what);
        }
        let shares = why.shares();
        if let Some(outside) = shares.outside {
            let pages = ", pages that blocks do not fill";
            let pages = when(why.pages_are_unknown(), pages);
            let whose = match why.settings.audited {
                true => "contexts themselves",
                false => "this process's libraries and contexts themselves",
            };
            let outside = ByteSize(outside);
            self.row(outside_of, format!("{outside}: {whose}{pages}"));
        }
        match &why.processes {
            Processes::Unknown(reason) => self.row("other processes", format!("unknown: {reason}")),
            Processes::Known(_) if why.others().next().is_none() => {
                self.row("other processes", "none that can be seen");
            }
            Processes::Known(_) => {
                for process in why.others() {
                    let bytes = size(process.bytes);
                    let name = plain(process.name.as_deref().unwrap_or("unknown"));
                    let own = "; may be this process, by its number outside";
                    let own = when(why.may_be_own(process), own);
                    self.row(
                        "other processes",
                        format!("pid {}: {bytes}, {name}{own}", process.pid),
                    );
                }
            }
        }
        if why.total.is_some() && why.free.is_some() && shares.rest != 0 {
            let rest = ByteSize(shares.rest).to_string();
            let whose = match shares.outside {
                Some(_) => "other holders",
                None => "contexts themselves, and other holders",
            };
            self.row("the rest", format!("{rest}: {whose}"));
        }
    }

    /// What is recorded of page-locked memory.
    fn host_memory(&mut self) {
        let why = self.why;
        let page_locked = || why.usage.iter().filter(|usage| is_page_locked(usage.kind));
        for usage in page_locked() {
            self.row(why.this(), amount_of(usage.kind, usage.amount));
        }
        if page_locked().next().is_none() {
            self.row(why.this(), "no page-locked memory");
        }
    }

    fn call_sites(&mut self) {
        let why = self.why;
        let sites = why.call_sites.iter();
        let sites: Vec<_> = sites
            .filter(|usage| why.request.may_be_why(usage.group.kind))
            .collect();
        let unknown = why.settings.level == TrackingLevel::Counts || why.info.context == 0;
        if unknown && sites.is_empty() {
            return;
        }
        self.line("");
        let place = when(!why.settings.audited, " in this context");
        self.line(format!("call sites that hold it{place}:"));
        if why.settings.sample > 1 {
            let sample = why.settings.sample;
            self.line(format!(
                "  (one resource in {sample} is recorded: these are estimates)"
            ));
        }
        for usage in sites.iter().take(CALL_SITES) {
            let amount = amount_of(usage.group.kind, usage.group.amount);
            let mut line = format!("  {amount}{}", self.origin(&usage.group));
            if let Some(growth) = usage.growth.filter(|growth| *growth != 0) {
                let sign = if growth < 0 { "-" } else { "+" };
                let size = ByteSize(growth.unsigned_abs());
                let _ = write!(line, ", {sign}{size} since the baseline");
            }
            if usage.small_pages != 0 {
                let pages = count(usage.small_pages, "page");
                let _ = write!(line, ", in {pages}");
            }
            self.line(line);
        }
        let more = sites.len().saturating_sub(CALL_SITES);
        if more != 0 {
            self.line(format!(
                "  … and {}, not shown",
                count(more as u64, "more call site")
            ));
        }
        if sites.is_empty() {
            self.line("  none");
        }
    }

    fn recovery(&mut self) {
        if self.why.recovery.is_empty() {
            return;
        }
        self.line("");
        self.line("what was tried:");
        for result in &self.why.recovery {
            let (name, nothing) = match result.step {
                RecoveryStep::Compact => ("compact pools", "nothing could be released"),
                RecoveryStep::Callbacks => ("callbacks", "none is registered"),
                RecoveryStep::Wait => ("wait for frees", "no frees are pending"),
                RecoveryStep::Trim => ("trim pools", "no pool of the driver has unused memory"),
                RecoveryStep::OtherProcesses => ("other processes", "none released memory"),
            };
            let refused = self.why.limit.is_some_and(|limit| limit.refused);
            let of_pool = self.why.limit.is_some_and(|limit| limit.of_pool);
            let helps = |step| match step {
                RecoveryStep::Callbacks => true,
                // Blocks of a pool may wait for their streams.
                RecoveryStep::Compact | RecoveryStep::Wait => of_pool,
                RecoveryStep::Trim | RecoveryStep::OtherProcesses => false,
            };
            let outcome = match (result.allowed, result.tried) {
                (false, _) => "turned off".to_owned(),
                (true, false) if refused && !helps(result.step) => {
                    "does not help against a limit".to_owned()
                }
                (true, false) => nothing.to_owned(),
                (true, true) => format!("{} freed", ByteSize(result.freed)),
            };
            self.row(name, outcome);
        }
    }
}
