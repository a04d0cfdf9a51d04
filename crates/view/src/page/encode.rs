//! A run as one blob: the head as JSON, then columns.
//!
//! ```text
//!     length of the head (4 bytes, little endian) | head | call sites | times | starts | lives | addresses | bytes | sites |
//!     threads | labels | contexts | kinds | streams | leaked | lost | reachable
//! ```
//!
//! The last columns have numbers of allocations: of those that ended with their context and were not freed, and of those
//! that a search at the end found lost or reachable. There are few.
//!
//! Starts and lives count events, not time: most take one byte, and order is exact although times are rounded.

use std::collections::HashMap;
use std::io;

use cuguard_report::phrase::stream;

use super::column::{Columns, pack};
use super::head::{self, Head};
use super::order::{NEVER, Order};
use super::thin::{self, Kept};
use crate::{Allocation, Fate, Run, growing_sites};

/// Beyond so many events, times are rounded to microseconds.
const EXACT_EVENTS: usize = 200_000;

/// The blob of a run, deflated and in base64.
pub(super) fn blob(
    run: &Run,
    mut order: Order,
    kept: Kept,
    opens: Option<u64>,
) -> io::Result<String> {
    // Marks are placed among all events, before some are left out.
    let before: Option<Vec<u32>> = kept.keep.as_ref().map(|keep| {
        let mut count = 0;
        let count_kept = order.events.iter().map(|event| {
            count += u32::from(keep[event.allocation as usize]);
            count
        });
        count_kept.collect()
    });
    let position = |time| {
        order.at(time).map_or(-1, |position| match &before {
            Some(before) => i64::from(before[position as usize]) - 1,
            None => i64::from(position),
        })
    };
    let marks = head::marks(run, position);
    let opens = opens.map(|time| (time, position(time)));
    drop(before);
    if let Some(keep) = &kept.keep {
        order.events.retain(|event| keep[event.allocation as usize]);
    }

    let (starts, ends) = thin::positions(run, &order);
    // In the order of their begin, which need not be that of the run where two begin at once.
    let mut chosen: Vec<u32> = (0..run.allocations.len() as u32)
        .filter(|index| starts[*index as usize] != NEVER)
        .collect();
    chosen.sort_unstable_by_key(|index| starts[*index as usize]);
    let tick = if order.events.len() > EXACT_EVENTS {
        1000
    } else {
        1
    };
    let of = |index: &u32| &run.allocations[*index as usize];
    let shift = chosen
        .iter()
        .map(|index| of(index).address)
        .fold(0, |bits, address| bits | address)
        .trailing_zeros()
        .min(12);

    let mut columns = Columns::default();
    let growing = growing_sites(run);
    let common = growing.iter().map(|growing| &growing.call_site);
    let sites: Vec<_> = run.sites.iter().chain(common).collect();
    let frames = head::frames(&sites, &mut columns);
    columns.extend_deltas(order.events.iter().map(|event| event.time / tick));
    columns.extend_deltas(
        chosen
            .iter()
            .map(|index| u64::from(starts[*index as usize])),
    );
    columns.extend(chosen.iter().map(|index| match ends[*index as usize] {
        NEVER => 0,
        end => u64::from(end - starts[*index as usize]),
    }));
    columns.extend_deltas(chosen.iter().map(|index| of(index).address >> shift));
    // Address ranges are reserved, not allocated: they have a size and take no memory.
    columns.extend(chosen.iter().map(|index| run.amount(of(index)).bytes));
    let mut column = |value: fn(&Allocation) -> u32| {
        columns.extend(chosen.iter().map(|index| u64::from(value(of(index)))))
    };
    column(|allocation| allocation.site);
    column(|allocation| allocation.thread);
    column(|allocation| allocation.label);
    column(|allocation| allocation.context);
    column(|allocation| u32::from(allocation.kind));
    let mut streams = Streams::default();
    columns.extend(chosen.iter().map(|index| streams.index(of(index).stream)));
    let mut numbers = |counts: fn(&Allocation) -> bool| {
        let numbers = (0..).zip(&chosen);
        let numbers = numbers.filter(|(_, index)| counts(of(index)));
        let numbers: Vec<u64> = numbers.map(|(number, _)| number).collect();
        columns.extend_deltas(numbers.iter().copied());
        numbers.len()
    };
    let leaked = numbers(|one| one.leaked);
    let lost = numbers(|one| one.fate == Fate::Lost);
    let reachable = numbers(|one| one.fate == Fate::Reachable);

    let head = Head {
        source: &run.source,
        command: &run.command,
        pid: run.pid,
        host: &run.host,
        rank: run.rank,
        started: run.started / 1_000_000,
        origin: run.origin.words(),
        begin: run.begin.min(run.end),
        end: run.end,
        exited: run.exited,
        kinds: run
            .kinds
            .iter()
            .map(|kind| (&*kind.name, kind.on_device, kind.is_memory))
            .collect(),
        names: &run.names,
        streams: streams.names,
        frames,
        types: sites.iter().map(|site| &*site.type_name).collect(),
        named: head::named(run, &growing),
        marks,
        growth: head::growth(run, &growing),
        opens,
        problems: &run.problems,
        caveats: run.caveats(),
        is_report: run.is_report,
        left_out: kept.left_out,
        allocations: chosen.len(),
        leaked,
        lost,
        reachable,
        events: order.events.len(),
        tick,
        shift,
    };
    let head = serde_json::to_vec(&head)?;
    let mut bytes = (head.len() as u32).to_le_bytes().to_vec();
    bytes.extend(head);
    bytes.append(&mut columns.0);
    pack(&bytes)
}

/// Handles of streams by number: a page shows few, and they are larger than its integers.
#[derive(Default)]
struct Streams {
    numbers: HashMap<u64, u64>,
    names: Vec<String>,
}

impl Streams {
    fn index(&mut self, handle: u64) -> u64 {
        if self.names.is_empty() {
            self.names.push("no stream".into());
            self.numbers.insert(0, 0);
        }
        *self.numbers.entry(handle).or_insert_with(|| {
            self.names.push(stream(handle));
            self.names.len() as u64 - 1
        })
    }
}
