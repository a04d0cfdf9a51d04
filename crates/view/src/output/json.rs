//! Moments as JSON; docs/recording-schema.md describes it.

use std::collections::HashMap;

use serde_json::{Value, json};

use crate::group::{Group, group};
use crate::growth::growing_sites;
use crate::json_parts::{VERSION, amount, identity, optional, seconds, stack};
use crate::look::{Frames, Look};
use crate::ranks::Ranks;
use crate::run::{MarkKind, Run};
use crate::summary::Overview;

/// Runs and a moment of each as one JSON object on one line, with a line break.
///
/// ```
/// use cuguard_view::{At, Look, Overview, Run, json};
///
/// let run = Run { pid: 42, ..Run::default() };
/// let json = json(&[Overview::new(&run, At::Peak)?], Look::default());
/// assert!(json.starts_with("{\"version\":1,") && json.contains("\"process\":42"));
/// # Ok::<(), cuguard_view::ViewError>(())
/// ```
#[must_use]
pub fn json(overviews: &[Overview<'_>], look: Look) -> String {
    let runs: Vec<Value> = overviews
        .iter()
        .map(|overview| run(overview, look))
        .collect();
    let ranks = match overviews.len() {
        0 | 1 => Value::Null,
        _ => Ranks::new(overviews).json(look),
    };
    let document = json!({
        "version": VERSION,
        "tool": "cuguard-report",
        "tool_version": env!("CARGO_PKG_VERSION"),
        "runs": runs,
        "ranks": ranks,
    });
    format!("{document}\n")
}

fn site_stack(run: &Run, site: u32, frames: Frames) -> Value {
    match run.sites.get(site as usize) {
        Some(site) => stack(site, frames),
        None => Value::Array(Vec::new()),
    }
}

fn run(overview: &Overview<'_>, look: Look) -> Value {
    let moment = &overview.moment;
    let run = moment.run;
    let groups = group(moment, look.by, look.frames);
    let shown = look.top.unwrap_or(groups.len()).min(groups.len());
    let shown_groups: Vec<_> = groups[..shown].iter().map(|g| one(run, g, look)).collect();
    // Where nothing is alive, nothing is lost.
    let is_searched =
        overview.at_end.count == 0 || overview.lost.count + overview.reachable.count != 0;
    let mut object = identity(run);
    let more = json!({
        "times_from": run.origin.name(),
        "started": seconds(run.started),
        "begin_seconds": seconds(run.begin),
        "seconds": seconds(run.end),
        "exited": run.exited,
        "sample": run.sample.max(1),
        "caveats": run.caveats(),
        "peak": (!run.is_report).then(|| json!({
            "seconds": seconds(overview.peak.time),
            "bytes": overview.peak.bytes,
            "device_bytes": overview.peak.device_bytes,
        })),
        "end": {
            "seconds": seconds(run.end),
            "count": overview.at_end.count,
            "bytes": overview.at_end.bytes,
            "device_bytes": overview.device_bytes_at_end,
        },
        "leaked": amount(overview.leaked),
        "lost": is_searched.then(|| amount(overview.lost)),
        "reachable": is_searched.then(|| amount(overview.reachable)),
        "growing": (!run.is_report).then(|| growing(run, look.frames)),
        "allocated": (!run.is_report).then(|| amount(overview.allocated)),
        "out_of_memory": (!run.is_report).then(|| out_of_memory(run, look.frames)),
        "contexts": contexts(run),
        "moment": {
            "at": moment.at.to_string(),
            "seconds": seconds(moment.time),
            "count": moment.total.count,
            "bytes": moment.total.bytes,
            "device_bytes": moment.device_bytes,
        },
        "by": look.by.name(),
        "groups": shown_groups,
        "groups_not_shown": groups.len() - shown,
        "problems": run.problems,
    });
    if let (Value::Object(object), Value::Object(more)) = (&mut object, more) {
        object.extend(more);
    }
    object
}

fn one(run: &Run, group: &Group, look: Look) -> Value {
    let names = |indices: &[u32]| -> Value {
        let name = |index: &u32| run.names.get(*index as usize).map_or("", String::as_str);
        indices.iter().map(name).collect()
    };
    let kinds = group.kinds.iter().map(|(kind, amount)| {
        let kind = run
            .kinds
            .get(usize::from(*kind))
            .map_or("", |kind| kind.name.as_str());
        json!({ "kind": kind, "count": amount.count, "bytes": amount.bytes })
    });
    let streams = group.streams.iter().map(|stream| format!("{stream:#x}"));
    let largest = group.sites.first().map_or(0, |(site, _)| *site);
    let type_name = run
        .sites
        .get(largest as usize)
        .map_or("", |site| &site.type_name);
    json!({
        "name": group.name,
        "count": group.amount.count,
        "bytes": group.amount.bytes,
        "device_bytes": group.device_bytes,
        "inclusive": amount(group.inclusive),
        "kinds": kinds.collect::<Value>(),
        "labels": names(&group.labels),
        "threads": names(&group.threads),
        "streams": streams.collect::<Value>(),
        "oldest_seconds": seconds(group.oldest),
        "youngest_seconds": seconds(group.youngest),
        "call_sites": group.sites.len(),
        "type": optional(type_name),
        "stack": site_stack(run, largest, look.frames),
    })
}

fn out_of_memory(run: &Run, frames: Frames) -> Value {
    let errors = run.marks.iter().filter_map(|mark| match mark.kind {
        MarkKind::OutOfMemory {
            bytes,
            site,
            thread,
            ref diagnosis,
        } => Some(json!({
            "seconds": seconds(mark.time),
            "bytes": bytes,
            "thread": run.names.get(thread as usize),
            "stack": site_stack(run, site, frames),
            "diagnosis": optional(diagnosis),
        })),
        _ => None,
    });
    errors.collect()
}

fn growing(run: &Run, frames: Frames) -> Value {
    let sites = growing_sites(run).into_iter();
    let sites = sites.map(|site| {
        json!({
            "blocks": site.blocks,
            "from_bytes": site.from,
            "to_bytes": site.to,
            "begin_seconds": seconds(site.begin),
            "end_seconds": seconds(site.end),
            "stack": stack(&site.call_site, frames),
        })
    });
    sites.collect()
}

fn contexts(run: &Run) -> Value {
    // From the end, so that each context finds the first end after its creation.
    let mut ends: HashMap<u32, u64> = HashMap::new();
    let mut created = Vec::new();
    for mark in run.marks.iter().rev() {
        match mark.kind {
            MarkKind::ContextEnded { context } => {
                ends.insert(context, mark.time);
            }
            MarkKind::ContextCreated { context, device } => created.push(json!({
                "context": context,
                "device": device,
                "created_seconds": seconds(mark.time),
                "ended_seconds": ends.get(&context).copied().map(seconds),
            })),
            MarkKind::OutOfMemory { .. } => {}
        }
    }
    created.reverse();
    created.into()
}
