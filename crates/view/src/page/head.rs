//! What a page has of a run beside its allocations: names, call sites, marks. Read by `assets/data.js`.

use std::collections::HashMap;

use cuguard_report::oom::conclusion;
use serde::Serialize;

use super::column::{Columns, MAX_SAFE};
use super::thin::LeftOut;
use crate::{CallSite, Frame, GrowingSite, MarkKind, Run};

/// The head of a run's blob, as JSON.
#[derive(Serialize)]
pub(super) struct Head<'a> {
    pub(super) source: &'a str,
    pub(super) command: &'a str,
    pub(super) pid: u32,
    pub(super) host: &'a str,
    pub(super) rank: Option<u32>,
    /// Milliseconds since 1970: what `Date` takes.
    pub(super) started: u64,
    /// What times count from, in words.
    pub(super) origin: &'static str,
    /// When the recording began, since then.
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) exited: bool,
    /// Name, on a device, memory.
    pub(super) kinds: Vec<(&'a str, bool, bool)>,
    pub(super) names: &'a [String],
    pub(super) streams: Vec<String>,
    /// Function, file, line, library, of the program.
    pub(super) frames: Vec<(&'a str, &'a str, u32, &'a str, bool)>,
    pub(super) types: Vec<&'a str>,
    /// For each call site the index of the frame that it is named after, among its own.
    pub(super) named: Vec<Option<usize>>,
    pub(super) marks: Vec<HeadMark<'a>>,
    pub(super) growth: Vec<HeadGrowth>,
    /// The time and the position at which the page opens; none: at the peak.
    pub(super) opens: Option<(u64, i64)>,
    pub(super) problems: &'a [String],
    pub(super) caveats: Vec<String>,
    /// Without history: the peak and what was allocated are not known.
    pub(super) is_report: bool,
    pub(super) left_out: LeftOut,
    /// How many allocations the columns have.
    pub(super) allocations: usize,
    /// How many of them ended with their context and were not freed.
    pub(super) leaked: usize,
    /// How many of them a search at the end found lost.
    pub(super) lost: usize,
    /// How many of them it found reachable.
    pub(super) reachable: usize,
    /// How many events: each allocation's begin, and its end where it has one.
    pub(super) events: usize,
    /// Nanoseconds of a unit of time.
    pub(super) tick: u64,
    /// Zero bits at the end of every address, which the column does not have.
    pub(super) shift: u32,
}

/// A call site that grows.
#[derive(Serialize)]
pub(super) struct HeadGrowth {
    sites: Vec<u32>,
    /// The call site that is shown: it has the frames in common alone.
    shown: usize,
    blocks: u64,
    grown: u64,
    bytes: u64,
    begin: u64,
    end: u64,
    curve: Vec<u64>,
}

/// The call sites that grow. Those that are shown of them are behind the call sites of the run.
pub(super) fn growth(run: &Run, growing: &[GrowingSite]) -> Vec<HeadGrowth> {
    let sites = (run.sites.len()..).zip(growing);
    let sites = sites.map(|(shown, site)| HeadGrowth {
        sites: site.sites.clone(),
        shown,
        blocks: site.blocks,
        grown: site.to.saturating_sub(site.from).min(MAX_SAFE),
        bytes: site.to.min(MAX_SAFE),
        begin: site.begin,
        end: site.end,
        curve: site
            .curve
            .iter()
            .map(|bytes| (*bytes).min(MAX_SAFE))
            .collect(),
    });
    sites.collect()
}

/// For each call site, and those of `growing`, the index of the frame that it is named after.
pub(super) fn named(run: &Run, growing: &[GrowingSite]) -> Vec<Option<usize>> {
    let mut named = run.naming_frames();
    let of_growing = growing.iter().map(|growing| {
        let last = growing.call_site.frames.len().checked_sub(1)?;
        let of_site = named.get(growing.site as usize).copied()??;
        Some(of_site.min(last))
    });
    let of_growing: Vec<_> = of_growing.collect();
    named.extend(of_growing);
    named
}

/// A mark, at a position of the events that are kept.
#[derive(Serialize)]
pub(super) struct HeadMark<'a> {
    time: u64,
    /// The last event before it; -1: none.
    position: i64,
    what: &'static str,
    context: u32,
    device: u32,
    bytes: u64,
    site: u32,
    #[serde(skip_serializing_if = "str::is_empty")]
    thread: &'a str,
    /// Of the diagnosis the part that says why, and all of it.
    #[serde(skip_serializing_if = "str::is_empty")]
    why: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    diagnosis: &'a str,
}

/// The marks. `position` is the last event at or before a time, among those that are kept.
pub(super) fn marks(run: &Run, position: impl Fn(u64) -> i64) -> Vec<HeadMark<'_>> {
    run.marks
        .iter()
        .map(|mark| {
            let mut head = HeadMark {
                time: mark.time,
                position: position(mark.time),
                what: "",
                context: 0,
                device: 0,
                bytes: 0,
                site: 0,
                thread: "",
                why: "",
                diagnosis: "",
            };
            match &mark.kind {
                MarkKind::ContextCreated { context, device } => {
                    (head.what, head.context, head.device) = ("created", *context, *device);
                }
                MarkKind::ContextEnded { context } => {
                    (head.what, head.context) = ("ended", *context)
                }
                MarkKind::OutOfMemory {
                    bytes,
                    site,
                    thread,
                    diagnosis,
                } => {
                    (head.what, head.bytes, head.site) = ("oom", (*bytes).min(MAX_SAFE), *site);
                    head.thread = run.names.get(*thread as usize).map_or("", String::as_str);
                    (head.why, head.diagnosis) = (conclusion(diagnosis), diagnosis);
                }
            }
            head
        })
        .collect()
}

/// Frames, each once, and the column of call sites: for each the number of frames and their indices.
pub(super) fn frames<'a>(
    sites: &[&'a CallSite],
    columns: &mut Columns,
) -> Vec<(&'a str, &'a str, u32, &'a str, bool)> {
    let mut indices: HashMap<&Frame, u64> = HashMap::new();
    let mut frames = Vec::new();
    for site in sites {
        columns.push(site.frames.len() as u64);
        for frame in &site.frames {
            let index = *indices.entry(frame).or_insert_with(|| {
                frames.push((
                    &*frame.function,
                    &*frame.file,
                    frame.line,
                    &*frame.library,
                    frame.in_app,
                ));
                frames.len() as u64 - 1
            });
            columns.push(index);
        }
    }
    frames
}
