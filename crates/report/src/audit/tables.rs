//! The tables of a report: what is alive by library and by the first frame outside of the CUDA libraries, what grows, and
//! what was alive at the peak.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use cuguard_registry::{Amount, Fate, Growth, Kind};

use super::class::{Class, class, origin};
use super::process::Process;
use crate::rows::Row;
use crate::symbols::{Frame, Symbols};

/// What is alive of one library, or of one frame.
#[derive(Clone, Debug, Default)]
pub(super) struct Share {
    pub(super) name: String,
    /// The frame, in the table by frame.
    pub(super) frame: Option<Frame>,
    /// All that is alive. Bytes are those of memory.
    pub(super) live: Amount,
    /// What of it is lost.
    pub(super) lost: Amount,
}

/// Call sites that grow, by the first frame outside of the CUDA libraries.
#[derive(Clone, Debug)]
pub(super) struct Growing {
    pub(super) growth: Growth,
    /// The stack of the call site that grew most.
    pub(super) frames: Vec<Frame>,
}

/// What was alive at the peak.
#[derive(Clone, Debug, Default)]
pub(super) struct PeakTable {
    pub(super) time: Duration,
    pub(super) bytes: u64,
    pub(super) shares: Vec<Share>,
}

/// Bytes of memory, and none of a reserved range of addresses.
pub(super) fn memory(kind: Kind, amount: Amount) -> Amount {
    let bytes = if kind.is_memory() { amount.bytes } else { 0 };
    Amount::new(amount.count, bytes)
}

/// The first frame outside of the CUDA libraries and allocators; where there is none, that of a library that asked.
pub(super) fn first_user(frames: &[Frame]) -> Option<&Frame> {
    origin(frames).map(|index| &frames[index])
}

/// What a reader sees of the first frame outside of the CUDA libraries: its name, and its line.
type FrameKey = (String, Option<String>, Option<u32>);

fn frame_key(frames: &[Frame]) -> FrameKey {
    match first_user(frames) {
        Some(frame) => (
            frame.name().into_owned(),
            frame.symbol.file.clone(),
            frame.symbol.line,
        ),
        None => ("unknown".to_owned(), None, None),
    }
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
fn shares<K: std::hash::Hash + Eq>(
    rows: &[Row<'_>],
    key: impl Fn(&[Frame]) -> K,
    share: impl Fn(&[Frame]) -> Share,
) -> Vec<Share> {
    let mut found: HashMap<K, Share> = HashMap::new();
    for row in rows {
        let share = found
            .entry(key(&row.frames))
            .or_insert_with(|| share(&row.frames));
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

/// What is alive by library.
pub(super) fn by_library(rows: &[Row<'_>]) -> Vec<Share> {
    shares(rows, library, |frames| Share {
        name: library(frames),
        ..Share::default()
    })
}

fn share_of_frame(frames: &[Frame]) -> Share {
    Share {
        name: frame_key(frames).0,
        frame: first_user(frames).cloned(),
        ..Share::default()
    }
}

/// What is alive by the first frame outside of the CUDA libraries and allocators.
pub(super) fn by_frame(rows: &[Row<'_>]) -> Vec<Share> {
    shares(rows, frame_key, share_of_frame)
}

/// What keeps rising. Call sites are added up by their first frame outside of the CUDA libraries: an allocator that caches
/// gets its memory through any of them.
pub(super) fn growing(process: &Process, symbols: &mut Symbols) -> Vec<Growing> {
    struct Sum {
        bytes: Vec<u64>,
        frames: Vec<Frame>,
        most: u64,
    }
    let mut sums: HashMap<FrameKey, Sum> = HashMap::new();
    for site in &process.history.sites {
        let frames = symbols.frames(site.origin.stack, false);
        let rise = match site.bytes.as_slice() {
            [first, .., last] => last.saturating_sub(*first),
            _ => 0,
        };
        let sum = sums.entry(frame_key(&frames)).or_insert_with(|| Sum {
            bytes: vec![0; site.bytes.len()],
            frames: Vec::new(),
            most: 0,
        });
        for (sum, bytes) in sum.bytes.iter_mut().zip(&site.bytes) {
            *sum = sum.saturating_add(*bytes);
        }
        if rise >= sum.most {
            (sum.frames, sum.most) = (frames, rise);
        }
    }
    let rows = sums.into_iter().filter_map(|(key, sum)| {
        let growth = process.history.growth(&sum.bytes)?;
        let frames = sum.frames;
        Some((key, Growing { growth, frames }))
    });
    let mut rows: Vec<_> = rows.collect();
    rows.sort_by(|(key, row), (other_key, other)| {
        let rate = |row: &Growing| Reverse(row.growth.bytes_per_second());
        (rate(row), key).cmp(&(rate(other), other_key))
    });
    rows.into_iter().map(|(_, row)| row).collect()
}

/// What was alive at the peak, by the first frame outside of the CUDA libraries.
pub(super) fn peak(process: &Process, symbols: &mut Symbols) -> Option<PeakTable> {
    let peak = process.peak.as_ref()?;
    let mut found: HashMap<FrameKey, Share> = HashMap::new();
    for (origin, amount) in &peak.sites {
        let frames = symbols.frames(origin.stack, false);
        let share = found
            .entry(frame_key(&frames))
            .or_insert_with(|| share_of_frame(&frames));
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
