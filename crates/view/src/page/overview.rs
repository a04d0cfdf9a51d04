//! The figures of each run that stand side by side on a page with several.

use serde::Serialize;

use super::order::Order;
use crate::{Amount, FOREVER, MarkKind, Run};

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
    /// Without history: the peak and the allocations are those that the report lists.
    pub(super) is_report: bool,
    pub(super) peak: u64,
    pub(super) peak_time: u64,
    pub(super) allocations: u64,
    /// Not freed, also before its context ended, or still alive where the process did not exit.
    pub(super) alive: u64,
    pub(super) alive_bytes: u64,
    pub(super) out_of_memory: usize,
    /// The highest use of device memory in each of equal parts of the run.
    pub(super) curve: Vec<u64>,
}

impl Overview {
    pub(super) fn of(run: &Run, order: &Order) -> Self {
        let peak = crate::peak(run);
        let alive: Amount = run
            .allocations
            .iter()
            .filter(|allocation| allocation.end == FOREVER || allocation.leaked)
            .map(|allocation| run.amount(allocation))
            .sum();
        Self {
            rank: run.rank,
            host: run.host.clone(),
            pid: run.pid,
            command: run.command.clone(),
            source: run.source.clone(),
            end: run.end,
            is_report: run.is_report,
            peak: if peak.device_bytes > 0 {
                peak.device_bytes
            } else {
                peak.bytes
            },
            peak_time: peak.time,
            allocations: run.allocations.len() as u64,
            alive: alive.count,
            alive_bytes: alive.bytes,
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
        let bytes = run.device_bytes(&run.allocations[event.allocation as usize]);
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

#[cfg(test)]
mod tests {
    use super::Overview;
    use crate::page::order::Order;
    use crate::page::thin;
    use crate::{Allocation, FOREVER, RecordedKind, Run};

    /// Allocations: kind, begin, end, bytes.
    fn run(allocations: &[(u8, u64, u64, u64)]) -> Run {
        let kind = |name: &str, is_memory| RecordedKind {
            name: name.into(),
            on_device: is_memory,
            is_memory,
        };
        let allocation = |&(kind, start, end, bytes): &(u8, u64, u64, u64)| Allocation {
            kind,
            start,
            end,
            bytes,
            ..Allocation::default()
        };
        Run {
            kinds: vec![kind("device", true), kind("address_range", false)],
            allocations: allocations.iter().map(allocation).collect(),
            end: 30,
            ..Run::default()
        }
    }

    #[test]
    fn a_reserved_address_range_is_no_memory() {
        let run = run(&[(0, 0, FOREVER, 10), (1, 0, FOREVER, 1 << 40)]);
        let overview = Overview::of(&run, &Order::of(&run));
        assert_eq!((overview.alive, overview.alive_bytes), (2, 10));
    }

    #[test]
    fn what_is_left_out_has_no_bytes_of_address_ranges() {
        let range = (1, 20, 25, 1 << 40);
        let run = run(&[(0, 0, FOREVER, 10), (0, 0, 7, 1), range, range]);
        let kept = thin::keep(&run, &Order::of(&run), 2, None);
        let left_out = kept.left_out;
        assert_eq!(left_out.count, 2, "{left_out:?}");
        assert_eq!((left_out.bytes, left_out.at_once), (0, 0), "{left_out:?}");
    }

    #[test]
    fn any_sizes_have_a_sum() {
        let run = run(&[(0, 0, FOREVER, u64::MAX), (0, 0, FOREVER, u64::MAX)]);
        let overview = Overview::of(&run, &Order::of(&run));
        assert_eq!(overview.alive_bytes, u64::MAX);
    }
}
