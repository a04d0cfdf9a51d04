//! Which call sites grow. A call site is told apart by its frames of the program: allocators and CUDA libraries are left out.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use cuguard_registry::{Amount, CallerSteps, Fate, Rise, SiteHistory};

use super::class::{Class, class, origin};
use super::process::Process;
use super::sites::{FrameKey, SiteNames, key_of};
use crate::symbols::{Frame, Symbols};

/// A call site that grows.
#[derive(Clone, Debug)]
pub(super) struct Growing {
    pub(super) rise: Rise,
    /// Its bytes before the rise.
    pub(super) from: u64,
    /// Its bytes at the end.
    pub(super) to: u64,
    /// From the first block that stayed to the last.
    pub(super) over: Duration,
    /// The stack traces of all that grow together.
    pub(super) stacks: Vec<&'static [usize]>,
    /// The stack trace of the one that grew most, as far as all of them have it in common.
    pub(super) frames: Vec<Frame>,
    /// The frame of it that they are named after.
    pub(super) named: Option<Frame>,
}

impl Growing {
    pub(super) fn bytes(&self) -> u64 {
        self.to.saturating_sub(self.from)
    }

    pub(super) fn bytes_per_second(&self) -> u64 {
        let rate = u128::from(self.bytes()) * 1_000_000_000 / self.over.as_nanos().max(1);
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}

/// The call sites that grow, those with most bytes first. `without`: the stack traces of call sites that are left out.
pub(super) fn growing(
    process: &Process,
    symbols: &mut Symbols,
    names: &SiteNames,
    without: &HashSet<&'static [usize]>,
) -> Vec<Growing> {
    let mut lost: HashMap<&[usize], Amount> = HashMap::new();
    for group in &process.groups {
        if group.fate == Fate::Lost && group.kind.is_memory() {
            *lost.entry(group.origin.stack).or_default() += group.amount;
        }
    }
    let lost = |site: &SiteHistory| lost.get(site.origin.stack).copied().unwrap_or_default();
    let history = &process.history;
    let histories = history.sites.iter();
    let histories: Vec<_> = histories
        .filter(|site| !without.contains(site.origin.stack))
        .collect();
    let mut sites: Vec<CallerSteps<FrameKey>> = Vec::new();
    // Where the frames of each are in its stack trace.
    let mut places: Vec<Vec<usize>> = Vec::new();
    for site in &histories {
        let frames = symbols.frames(site.origin.stack, false);
        let user = origin(&frames).unwrap_or(frames.len());
        let is_named = |place: &usize| *place == user || class(&frames[*place]) == Class::User;
        let named: Vec<_> = (user..frames.len()).filter(is_named).collect();
        let mut steps = site.steps.clone();
        steps.lost = lost(site).count;
        sites.push(CallerSteps {
            frames: named.iter().map(|place| key_of(&frames[*place])).collect(),
            steps,
        });
        places.push(named);
    }
    let time = |step: usize| history.steps.times.get(step).copied().unwrap_or_default();
    let found = cuguard_registry::growing(&history.steps, &sites).into_iter();
    let rows = found.filter_map(|found| {
        let mut bytes = vec![0_u64; history.steps.work.len()];
        for site in &found.sites {
            for (sum, bytes) in bytes.iter_mut().zip(&histories[*site].bytes) {
                *sum = sum.saturating_add(*bytes);
            }
        }
        let rises = |site: &&usize| {
            let bytes = &histories[**site].bytes;
            let last = bytes.last().copied().unwrap_or(0);
            // The first of equals, so that it is the same in each run.
            (
                last.saturating_sub(bytes.first().copied().unwrap_or(0)),
                Reverse(**site),
            )
        };
        let most = *found.sites.iter().max_by_key(rises)?;
        let rise = found.rise;
        let to = bytes.last().copied().unwrap_or(0);
        let from = match rise.only_lost {
            true => {
                let lost = found.sites.iter().map(|site| lost(histories[*site]));
                to.saturating_sub(lost.sum::<Amount>().bytes)
            }
            false => rise.first.checked_sub(1).map_or(0, |step| bytes[step]),
        };
        let stack = histories[most].origin.stack;
        let mut frames = symbols.frames(stack, false);
        // No caller grows by itself: none is named.
        let (all, common) = (&places[most], &places[most][..found.common]);
        let named = names.place(stack).min(common.len().saturating_sub(1));
        let named = common.get(named).map(|place| frames[*place].clone());
        if let Some(last) = common.last()
            && common.len() < all.len()
        {
            frames.truncate(last + 1);
        }
        let stacks = found.sites.iter();
        let stacks = stacks.map(|site| histories[*site].origin.stack);
        Some(Growing {
            rise,
            from,
            to,
            over: time(rise.last).saturating_sub(time(rise.first)),
            stacks: stacks.collect(),
            frames,
            named,
        })
    });
    let mut rows: Vec<_> = rows.collect();
    // Stable: of the same size, by frame.
    rows.sort_by_key(|row| Reverse((row.bytes(), row.rise.blocks)));
    rows
}
