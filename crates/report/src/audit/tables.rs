//! The tables of a report: what is alive by library and by the first frame outside of the CUDA libraries, and what was alive at
//! the peak.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use cuguard_registry::{Amount, Fate, ResourceKind};

use super::class::{Class, class};
use super::process::Process;
use super::sites::{SiteNames, key_of};
use crate::rows::Row;
use crate::symbols::Frame;

/// What is alive of one library, of one call site, or from one holder.
#[derive(Clone, Debug, Default)]
pub(super) struct Share {
    pub(super) name: String,
    /// The frame that a call site is named after.
    pub(super) frame: Option<Frame>,
    /// All that is alive. Bytes are those of memory.
    pub(super) live: Amount,
    /// What of it is lost.
    pub(super) lost: Amount,
}

/// What was alive at the peak.
#[derive(Clone, Debug, Default)]
pub(super) struct PeakTable {
    pub(super) time: Duration,
    pub(super) bytes: u64,
    pub(super) shares: Vec<Share>,
}

/// Bytes of memory, and none of a reserved range of addresses.
pub(super) fn memory(kind: ResourceKind, amount: Amount) -> Amount {
    let bytes = if kind.is_memory() { amount.bytes } else { 0 };
    Amount::new(amount.count, bytes)
}

/// The library that a stack belongs to: that of the innermost frame outside of the driver and the CUDA runtime.
fn library(frames: &[Frame]) -> String {
    let outside = |frame: &&Frame| !matches!(class(frame), Class::Driver | Class::Own);
    let of_module = |frame: &Frame| match (&frame.module, &frame.symbol.file) {
        (Some(module), _) => module.name().to_owned(),
        (None, Some(file)) => file.rsplit('/').next().unwrap_or_default().to_owned(),
        (None, None) => "unknown".to_owned(),
    };
    let outside: Vec<&Frame> = frames.iter().filter(outside).collect();
    let not_runtime = outside.iter().find(|frame| class(frame) != Class::Runtime);
    let first = not_runtime.or(outside.first());
    first.map_or_else(|| "unknown".to_owned(), |frame| of_module(frame))
}

fn sort(shares: &mut [Share]) {
    shares.sort_by(|one, other| {
        fn order(share: &Share) -> impl Ord + '_ {
            let symbol = share.frame.as_ref().map(|frame| &frame.symbol);
            let size = Reverse((share.live.bytes, share.live.count));
            (size, &share.name, symbol)
        }
        order(one).cmp(&order(other))
    });
}

/// Shares of rows, by a key.
fn shares<'r, 'a: 'r, K: Hash + Eq>(
    rows: impl IntoIterator<Item = &'r Row<'a>>,
    key: impl Fn(&'r Row<'a>) -> K,
    share: impl Fn(&'r Row<'a>) -> Share,
) -> Vec<Share> {
    let mut found: HashMap<K, Share> = HashMap::new();
    for row in rows {
        let share = found.entry(key(row)).or_insert_with(|| share(row));
        let amount = memory(row.group.kind, row.group.amount);
        share.live += amount;
        if row.group.fate == Fate::Lost {
            share.lost += amount;
        }
    }
    let mut shares: Vec<Share> = found.into_values().collect();
    sort(&mut shares);
    shares
}

fn named(name: String) -> Share {
    Share {
        name,
        ..Share::default()
    }
}

fn of_frame(frame: Option<&Frame>) -> Share {
    let name = frame.map_or_else(|| "unknown".into(), Frame::name);
    Share {
        frame: frame.cloned(),
        ..named(name.into_owned())
    }
}

/// What is alive by library.
pub(super) fn by_library(rows: &[Row<'_>]) -> Vec<Share> {
    let name = |row: &Row<'_>| library(&row.frames);
    shares(rows, name, |row| named(name(row)))
}

/// What is reachable by the place that holds its address.
pub(super) fn by_holder(rows: &[Row<'_>]) -> Vec<Share> {
    let reachable = rows.iter().filter(|row| row.group.fate == Fate::Reachable);
    let name = |row: &Row<'_>| row.group.holder.unwrap_or("an unknown place").to_owned();
    shares(reachable, name, |row| named(name(row)))
}

/// What is alive by call site.
pub(super) fn by_frame(rows: &[Row<'_>], names: &SiteNames) -> Vec<Share> {
    let frame = |row: &Row<'_>| names.of(row.group.origin.stack);
    shares(
        rows,
        |row| frame(row).map(key_of),
        |row| of_frame(frame(row)),
    )
}

/// What was alive at the peak, by call site.
pub(super) fn peak(process: &Process, names: &SiteNames) -> Option<PeakTable> {
    let peak = process.peak.as_ref()?;
    let mut found: HashMap<_, Share> = HashMap::new();
    for (origin, amount) in &peak.sites {
        let frame = names.of(origin.stack);
        let share = found
            .entry(frame.map(key_of))
            .or_insert_with(|| of_frame(frame));
        share.live += *amount;
    }
    let mut shares: Vec<Share> = found.into_values().collect();
    sort(&mut shares);
    Some(PeakTable {
        time: peak.time,
        bytes: peak.bytes,
        shares,
    })
}
