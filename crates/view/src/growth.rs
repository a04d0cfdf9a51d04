//! Which call sites of a run grow. What growth is, `cuguard_registry::growth` defines; here a run becomes steps, the same as while it
//! was recorded.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use cuguard_registry::{CallerSteps, SiteSteps, StepLength, Steps, growing, is_teardown};

use crate::look::Frames;
use crate::run::{CallSite, FOREVER, Fate, Run};

/// The call sites that allocate most bytes in all; others are not looked at.
const SITES: usize = 4096;

/// Call sites that grow, as one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GrowingSite {
    /// The one that grew most, an index of [`Run::sites`].
    pub site: u32,
    /// All of them, ascending.
    pub sites: Vec<u32>,
    /// Its stack trace, as far as all of them have it in common: no caller grows by itself. They are named after it.
    pub call_site: CallSite,
    /// How many blocks stayed.
    pub blocks: u64,
    /// The bytes before the first of them.
    pub from: u64,
    /// The bytes at the end.
    pub to: u64,
    /// When the first was allocated, in nanoseconds since the [origin](crate::Run::origin).
    pub begin: u64,
    /// When the last was.
    pub end: u64,
    /// The bytes at the end of each step.
    pub curve: Vec<u64>,
}

/// What one call site holds at the end of each step.
#[derive(Clone, Default)]
struct Series {
    steps: SiteSteps,
    bytes: Vec<u64>,
    live: u64,
    held: u64,
    allocated: u64,
    /// The bytes of those that are lost.
    lost: u64,
}

/// The call sites that grow, those that grew most first. A leak report does not have what was freed, and so none.
///
/// ```
/// use cuguard_view::{Allocation, FOREVER, RecordedKind, Run, growing_sites};
///
/// let device = RecordedKind { name: "device".to_owned(), on_device: true, is_memory: true };
/// let block = |start, end, site| Allocation { start, end, site, bytes: 100, ..Allocation::default() };
/// // Each round keeps a block, and frees another.
/// let rounds = (0..20).flat_map(|round| [block(round * 10, FOREVER, 0), block(round * 10 + 1, round * 10 + 2, 1)]);
/// let run = Run { kinds: vec![device], allocations: rounds.collect(), sites: vec![Default::default(); 2], end: 200, ..Run::default() };
/// let growing = growing_sites(&run);
/// assert_eq!((growing.len(), growing[0].site, growing[0].blocks), (1, 0, 20));
/// ```
#[must_use]
pub fn growing_sites(run: &Run) -> Vec<GrowingSite> {
    if run.is_report {
        return Vec::new();
    }
    let (steps, sites) = series(run);
    let callers: Vec<_> = sites
        .iter()
        .map(|(site, series)| CallerSteps {
            frames: match run.sites.get(*site as usize) {
                Some(site) => site.shown(Frames::Program).collect(),
                None => Vec::new(),
            },
            steps: series.steps.clone(),
        })
        .collect();
    let rows = growing(&steps, &callers).into_iter().map(|found| {
        let mut curve = vec![0_u64; steps.work.len()];
        for site in &found.sites {
            for (sum, bytes) in curve.iter_mut().zip(&sites[*site].1.bytes) {
                *sum = sum.saturating_add(*bytes);
            }
        }
        let rises = |site: &&usize| {
            let bytes = &sites[**site].1.bytes;
            let [first, last] =
                [bytes.first(), bytes.last()].map(|bytes| bytes.copied().unwrap_or(0));
            (last.saturating_sub(first), Reverse(**site))
        };
        let most = found.sites.iter().max_by_key(rises);
        let site = most.map_or(0, |site| sites[*site].0);
        let whole = run.sites.get(site as usize).cloned();
        let to = curve.last().copied().unwrap_or(0);
        let time = |step: usize| {
            steps
                .times
                .get(step)
                .map_or(0, |time| time.as_nanos() as u64)
        };
        let mut all: Vec<_> = found.sites.iter().map(|site| sites[*site].0).collect();
        all.sort_unstable();
        GrowingSite {
            site,
            sites: all,
            call_site: whole.unwrap_or_default().innermost(found.common),
            blocks: found.rise.blocks,
            from: match found.rise.only_lost {
                true => {
                    let lost = found.sites.iter().map(|site| sites[*site].1.lost);
                    to.saturating_sub(lost.fold(0, u64::saturating_add))
                }
                false => found
                    .rise
                    .first
                    .checked_sub(1)
                    .map_or(0, |step| curve[step]),
            },
            to,
            begin: time(found.rise.first),
            end: time(found.rise.last),
            curve,
        }
    });
    let mut rows: Vec<_> = rows.collect();
    rows.sort_by_key(|row| (Reverse(row.to.saturating_sub(row.from)), row.site));
    rows
}

/// What call sites hold over the run.
fn series(run: &Run) -> (Steps, Vec<(u32, Series)>) {
    // A block that ended with its context was not freed: it stays.
    let end_of = |index: usize| {
        let allocation = &run.allocations[index];
        if allocation.leaked {
            FOREVER
        } else {
            allocation.end.max(allocation.start)
        }
    };
    let is_memory = |index: &usize| {
        let kind = run.kinds.get(usize::from(run.allocations[*index].kind));
        kind.is_some_and(|kind| kind.is_memory)
    };
    // What is freed while the process exits does not hide what grew.
    let exit = run.exit_begins.map_or(run.end, |exit| exit.min(run.end));
    let starts: Vec<usize> = (0..run.allocations.len())
        .filter(|index| is_memory(index) && run.allocations[*index].start <= exit)
        .collect();
    let mut ends: Vec<usize> = starts
        .iter()
        .copied()
        .filter(|index| end_of(*index) != FOREVER && end_of(*index) <= exit)
        .collect();
    ends.sort_by_key(|index| end_of(*index));
    let mut sites = chosen(run, &starts);
    let (mut steps, mut live) = (Steps::default(), 0_u64);
    let length = StepLength::default();
    // By thread, how many blocks it allocated.
    let mut nth: HashMap<u32, u64> = HashMap::new();
    let (mut freed, mut last) = (ends.iter().peekable(), 0);
    let (mut done, mut before) = (0_u64, 0);
    let step =
        |steps: &mut Steps, time: u64, done: u64, live: u64, sites: &mut HashMap<u32, Series>| {
            steps.times.push(Duration::from_nanos(time));
            let before = run.work.partition_point(|(then, _)| *then <= time);
            let others = before.checked_sub(1).map_or(0, |last| run.work[last].1);
            steps.work.push(done.saturating_add(others));
            steps.live.push(live);
            for series in sites.values_mut() {
                series.steps.live.push(series.live);
                series.steps.allocated.push(series.allocated);
                series.bytes.push(series.held);
            }
        };
    let mut change = |index: usize, begins: bool, sites: &mut HashMap<u32, Series>| {
        let allocation = &run.allocations[index];
        live = if begins {
            live + 1
        } else {
            live.saturating_sub(1)
        };
        if let Some(series) = sites.get_mut(&allocation.site) {
            let bytes = allocation.bytes;
            match begins {
                true => {
                    (series.live, series.allocated) = (series.live + 1, series.allocated + 1);
                    series.held = series.held.saturating_add(bytes);
                    if allocation.fate == Fate::Lost {
                        series.steps.lost += 1;
                        series.lost = series.lost.saturating_add(bytes);
                    }
                }
                false => {
                    series.live = series.live.saturating_sub(1);
                    series.held = series.held.saturating_sub(bytes);
                }
            }
        }
        live
    };
    for index in &starts {
        let time = run.allocations[*index].start;
        while let Some(ended) = freed.next_if(|ended| end_of(**ended) <= time && **ended != *index)
        {
            change(*ended, false, &mut sites);
            done += 1;
        }
        last = time;
        before = change(*index, true, &mut sites);
        done += 1;
        let nth = nth.entry(run.allocations[*index].thread).or_default();
        if length.ends_step(*nth) {
            step(&mut steps, time, done, before, &mut sites);
        }
        *nth += 1;
        if length.is_too_short(steps.work.len()) {
            drop_every_other(&mut steps, &mut sites);
            length.double();
        }
    }
    // The last allocation, and the end.
    step(&mut steps, last, done, before, &mut sites);
    let mut after = before;
    for ended in freed {
        after = change(*ended, false, &mut sites);
        done += 1;
    }
    let first = starts
        .first()
        .map_or(0, |index| run.allocations[*index].start);
    let [falling, whole] =
        [last, first].map(|begin| Duration::from_nanos(exit.saturating_sub(begin)));
    if !is_teardown(before, after, falling, whole) {
        step(&mut steps, exit, done, after, &mut sites);
    }
    let mut sites: Vec<_> = sites.into_iter().collect();
    sites.sort_unstable_by_key(|(site, _)| *site);
    (steps, sites)
}

fn drop_every_other(steps: &mut Steps, sites: &mut HashMap<u32, Series>) {
    StepLength::drop_every_other(&mut steps.times);
    StepLength::drop_every_other(&mut steps.work);
    StepLength::drop_every_other(&mut steps.live);
    for series in sites.values_mut() {
        StepLength::drop_every_other(&mut series.steps.live);
        StepLength::drop_every_other(&mut series.steps.allocated);
        StepLength::drop_every_other(&mut series.bytes);
    }
}

/// The call sites that are looked at: those that allocate most.
fn chosen(run: &Run, starts: &[usize]) -> HashMap<u32, Series> {
    let mut bytes: HashMap<u32, u64> = HashMap::new();
    for index in starts {
        let allocation = &run.allocations[*index];
        let sum = bytes.entry(allocation.site).or_default();
        *sum = sum.saturating_add(allocation.bytes.max(1));
    }
    let mut sites: Vec<_> = bytes.into_iter().collect();
    sites.sort_unstable_by_key(|(site, bytes)| (Reverse(*bytes), *site));
    sites.truncate(SITES);
    sites
        .into_iter()
        .map(|(site, _)| (site, Series::default()))
        .collect()
}
