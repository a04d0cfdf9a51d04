//! The figures of each run that stand side by side on a page with several.

use serde::Serialize;

use super::order::{Order, device_bytes};
use crate::{FOREVER, MarkKind, Run};

/// How many values the small curve of a run has.
const CURVE: usize = 120;

/// What a page shows of a run before it is decoded.
#[derive(Serialize)]
pub(super) struct Overview {
    pub(super) rank: Option<u32>,
    pub(super) host: String,
    pub(super) pid: u32,
    pub(super) command: String,
    pub(super) source: String,
    pub(super) end: u64,
    pub(super) peak: u64,
    pub(super) peak_time: u64,
    pub(super) allocations: u64,
    /// Not freed, or still alive where the process did not exit.
    pub(super) alive: u64,
    pub(super) alive_bytes: u64,
    pub(super) out_of_memory: usize,
    /// The highest use of device memory in each of equal parts of the run.
    pub(super) curve: Vec<u64>,
}

impl Overview {
    pub(super) fn of(run: &Run, order: &Order) -> Self {
        let alive = run
            .allocations
            .iter()
            .filter(|allocation| allocation.end == FOREVER);
        Self {
            rank: run.rank,
            host: run.host.clone(),
            pid: run.pid,
            command: run.command.clone(),
            source: run.source.clone(),
            end: run.end,
            peak: order.peak.map_or(0, |peak| peak.bytes),
            peak_time: order.peak.map_or(0, |peak| peak.time),
            allocations: run.allocations.len() as u64,
            alive: alive.clone().count() as u64,
            alive_bytes: alive.map(|allocation| allocation.bytes).sum(),
            out_of_memory: run
                .marks
                .iter()
                .filter(|mark| matches!(mark.kind, MarkKind::OutOfMemory { .. }))
                .count(),
            curve: curve(run, order),
        }
    }
}

fn curve(run: &Run, order: &Order) -> Vec<u64> {
    let mut curve = vec![0u64; CURVE];
    let mut live = 0u64;
    let mut part = 0;
    for event in &order.events {
        let now = (u128::from(event.time) * CURVE as u128 / u128::from(run.end.max(1))) as usize;
        // What is alive at the begin of a part counts in it, too.
        while part < now.min(CURVE - 1) {
            part += 1;
            curve[part] = live;
        }
        let bytes = device_bytes(run, event.allocation);
        live = if event.is_free {
            live.saturating_sub(bytes)
        } else {
            live.saturating_add(bytes)
        };
        curve[part] = curve[part].max(live);
    }
    curve[part + 1..].fill(live);
    curve
}
