//! The report as JSON: one object on one line. `docs/audit-report-schema.md` is its schema.

use cuguard_registry::{Amount, Fate};

use super::class::class;
use super::prepare::{FATES, PreparedProcess};
use super::tables::Share;
use crate::json::{self, list, seconds};
use crate::json_value::{Value, object};
use crate::rows::Row;
use crate::symbols::Frame;

/// The version of the schema. It changes when a member is removed or changes its meaning.
const VERSION: u64 = 1;

/// The report, without a line break at its end.
pub(super) fn render(prepared: &PreparedProcess<'_>, max: Option<usize>) -> String {
    let process = prepared.process;
    let shown = max.unwrap_or(usize::MAX);
    let totals = list(&process.totals, |(kind, totals)| {
        object! {
            "kind": kind.name(),
            "live_count": totals.count,
            "live_bytes": totals.bytes,
            "peak_bytes": totals.peak_bytes,
            "allocated_count": totals.allocated,
        }
    });
    let shown_rows = FATES.iter().flat_map(|fate| {
        let rows = prepared.of(*fate);
        &rows[..shown.min(rows.len())]
    });
    let groups: Vec<Value> = shown_rows.map(group).collect();
    let not_shown = prepared.rows.len() - groups.len();
    let growth = prepared.growing.iter().take(shown).map(|growing| {
        object! {
            "blocks": growing.rise.blocks,
            "bytes_per_second": growing.bytes_per_second(),
            "from_bytes": growing.from,
            "to_bytes": growing.to,
            "seconds": seconds(growing.over),
            "stack": list(&growing.frames, frame),
        }
    });
    let growth = Value::Array(growth.collect());
    let peak = prepared.peak.as_ref().map(|peak| {
        object! {
            "bytes": peak.bytes,
            "seconds": seconds(peak.time),
            "by_frame": shares(&peak.shares, shown, false),
        }
    });
    let suppressed: Amount = prepared.suppressed.iter().map(|(_, amount)| *amount).sum();
    let search = process.search.as_ref().map(|search| {
        object! {
            "bytes": search.bytes,
            "seconds": seconds(search.elapsed),
            "cut_short": search.cut_short.as_deref(),
        }
    });
    let failure = process.failure.as_ref().map(|failure| {
        object! {"function": failure.function.as_str(), "code": failure.code}
    });
    let refused = prepared.refused.iter().take(shown).map(|row| {
        object! {
            "function": row.refused.function.as_str(),
            "kind": row.refused.kind.map(|kind| kind.name()),
            "bytes": row.refused.bytes,
            "largest_bytes": row.refused.largest,
            "count": row.refused.count,
            "diagnosis": row.refused.diagnosis.as_str(),
            "stack": list(&row.frames, frame),
        }
    });
    let refused = Value::Array(refused.collect());
    object! {
        "version": VERSION,
        "tool": "cuguard-audit",
        "tool_version": env!("CARGO_PKG_VERSION"),
        "process": process.pid,
        "command": process.command.as_str(),
        "reason": process.reason.as_str(),
        "seconds": seconds(process.duration),
        "lost": amount(prepared.amount(Fate::Lost)),
        "reachable": amount(prepared.amount(Fate::Reachable)),
        "unclassified": amount(prepared.amount(Fate::Unclassified)),
        "destroyed_with_context": amount(prepared.amount(Fate::DestroyedWithContext)),
        "freed_late": amount(prepared.amount(Fate::FreedLate)),
        "failure": failure,
        "refused_count": prepared.refused_count(),
        "refused": refused,
        "search": search,
        "totals": totals,
        "groups": Value::Array(groups),
        "groups_not_shown": not_shown,
        "suppressed": object! {
            "groups": prepared.suppressed_groups,
            "count": suppressed.count,
            "bytes": suppressed.bytes,
            "unused": list(&prepared.unused, |one| one.as_str().into()),
        },
        "by_library": shares(&prepared.by_library, shown, true),
        "by_frame": shares(&prepared.by_frame, shown, true),
        "growth": growth,
        "peak": peak,
        "unrecorded_functions": list(&process.unrecorded, |(function, calls)| {
            object! {"function": function.as_str(), "calls": *calls}
        }),
    }
    .to_string()
}

fn amount(amount: Amount) -> Value {
    object! {"count": amount.count, "bytes": amount.bytes}
}

fn group(row: &Row<'_>) -> Value {
    let group = &row.group;
    let mut value = object! {
        "fate": group.fate.name(),
        "holder": group.holder,
    };
    if let (Value::Object(members), Value::Object(more)) = (&mut value, json::group(group, &[])) {
        // What only guards have is left out.
        let own = ["site", "stack", "kept", "type", "label"];
        members.extend(more.into_iter().filter(|(name, _)| !own.contains(name)));
    }
    value.push("stack", list(&row.frames, frame));
    value
}

fn frame(frame: &Frame) -> Value {
    let mut value = json::frame(frame);
    if let Value::Object(members) = &mut value {
        members.retain(|(name, _)| *name != "in_app");
    }
    value.push("class", class(frame).name());
    value
}

fn shares(shares: &[Share], shown: usize, with_lost: bool) -> Value {
    let shares = &shares[..shown.min(shares.len())];
    list(shares, |share| {
        let mut value = object! {
            "name": share.name.as_str(),
            "count": share.live.count,
            "bytes": share.live.bytes,
        };
        if with_lost {
            value.push("lost_count", share.lost.count);
            value.push("lost_bytes", share.lost.bytes);
        }
        if let Some(frame) = &share.frame {
            value.push("file", frame.symbol.file.as_deref());
            value.push("line", frame.symbol.line);
        }
        value
    })
}
