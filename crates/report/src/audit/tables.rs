//! The tables of a report: what is alive by library and by the first frame outside of the CUDA libraries, and what was alive at
//! the peak.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use cuguard_registry::{Amount, Fate, Kind};

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

/// What a reader sees of a frame: its name, and its line.
pub(super) type FrameKey = (String, Option<String>, Option<u32>);

pub(super) fn key_of(frame: &Frame) -> FrameKey {
    let symbol = &frame.symbol;
    (frame.name().into_owned(), symbol.file.clone(), symbol.line)
}

/// That of the first frame outside of the CUDA libraries.
fn frame_key(frames: &[Frame]) -> FrameKey {
    first_user(frames).map_or_else(|| ("unknown".to_owned(), None, None), key_of)
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
