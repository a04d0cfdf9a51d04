//! Whether a call site grows. This file has the only definition; `cuguard run`, the out-of-memory diagnosis, recordings and
//! `assert_no_growth!` call it.
//!
//! A run is a sequence of *steps*, which are numbers of operations and not of seconds: allocations, frees, launches. The
//! *floor* of a call site after a step is the least number of its blocks that are live from then to the end. What is freed again
//! never raises the floor, nor does a cache that is full: each entry replaces another. Where the floor rises, blocks *stay*.
//!
//! ```text
//!   leak        ╱     loading ┌────   cache   ╱──────   emptied  ╱│ ╱│ ╱   late      ╱
//!             ╱               │             ╱           cache   ╱ │╱ │╱      leak   ╱
//!   floor   ╱                 │           ╱                    ───────             ╱
//!         ╱                ───┘         ╱                                  ───────
//! ```
//!
//! A call site grows if
//! 1. at least [`LEAST`] of its blocks are lost, whenever they were allocated; or blocks stay in at least [`LEAST`] *rounds*:
//!    between two of them the program does something else, [`WORK`] operations for each block, or nothing for [`PAUSE`]. Blocks of
//!    other call sites that stay, too, are nothing else: data is loaded from several lines;
//! 2. and they stay until the end: the call site did not go on allocating without any more staying (a full cache), nor did the
//!    program go on without the call site, for about as long as it had grown (loaded data);
//! 3. and it has more live than ever before they were allocated (a cache that is emptied, a queue). So a leak is seen once it exceeds
//!    the temporary blocks of the same call site.

use std::time::Duration;

/// In how many rounds blocks must stay. Where the rounds are given, two are enough.
pub(crate) const LEAST: u64 = 5;

/// How many operations of the program make a round, for each block that stays, or half an operation less on the average of a step: a
/// temporary block is two, its allocation and its free.
const WORK: u64 = 2;

/// A call site that allocates once in this time does it in rounds, whatever else the program does.
const PAUSE: Duration = Duration::from_millis(500);

/// A run in steps, as growth sees it. Cumulative: each step has the figures at its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    /// When each step ended, since the start of the process.
    pub times: Vec<Duration>,
    /// How many operations the program had done: allocations, frees, launches of kernels and graphs.
    pub work: Vec<u64>,
    /// How many blocks of all call sites were live; empty where that is unknown.
    pub live: Vec<u64>,
    /// Each step is a round: an iteration of a test.
    pub are_rounds: bool,
}

/// What is known of one call site at the end of each of the [`Steps`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteSteps {
    /// How many of its blocks were live.
    pub live: Vec<u64>,
    /// How many blocks it had allocated; empty where that is unknown.
    pub allocated: Vec<u64>,
    /// How many of those that are live at the end are lost.
    pub lost: u64,
}

impl SiteSteps {
    /// Adds another call site, to look at both as one.
    pub fn add(&mut self, other: &Self) {
        fn sum(own: &mut Vec<u64>, other: &[u64]) {
            if own.len() < other.len() {
                own.resize(other.len(), 0);
            }
            for (own, other) in own.iter_mut().zip(other) {
                *own = own.saturating_add(*other);
            }
        }
        sum(&mut self.live, &other.live);
        sum(&mut self.allocated, &other.allocated);
        self.lost = self.lost.saturating_add(other.lost);
    }
}

/// What a call site does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Growth {
    /// It keeps no blocks, always the same, or no more than before.
    #[default]
    Steady,
    /// Blocks stay, round after round.
    Grows(Rise),
    /// It allocated and nothing else happened: it may load data, or leak.
    TooShort,
    /// It grew, and freed what it had before the end.
    FellAgain,
}

impl Growth {
    /// The rise of a call site that grows.
    #[must_use]
    pub const fn rise(self) -> Option<Rise> {
        match self {
            Self::Grows(rise) => Some(rise),
            _ => None,
        }
    }
}

/// The blocks by which a call site grew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rise {
    /// How many blocks stayed.
    pub blocks: u64,
    /// In which step the first of them was allocated.
    pub first: usize,
    /// In which step the last of them was.
    pub last: usize,
    /// It is the blocks that are lost, whenever they were allocated: others of the call site do not grow.
    pub only_lost: bool,
}

/// Whether a call site grows.
///
/// ```
/// use std::time::Duration;
/// use cuguard_registry::{Growth, SiteSteps, Steps, growth};
///
/// // Ten operations in each step, and one block that stays.
/// let steps = Steps {
///     times: (1..=20).map(Duration::from_millis).collect(),
///     work: (1..=20).map(|step| step * 10).collect(),
///     ..Steps::default()
/// };
/// let leak = SiteSteps { live: (1..=20).collect(), ..SiteSteps::default() };
/// assert_eq!(growth(&steps, &leak).rise().unwrap().blocks, 20);
/// let cache = SiteSteps { live: (1..=20).map(|step: u64| step.min(5)).collect(), ..SiteSteps::default() };
/// assert_eq!(growth(&steps, &cache), Growth::Steady);
/// ```
#[must_use]
pub fn growth(steps: &Steps, site: &SiteSteps) -> Growth {
    let count = steps.work.len().min(steps.times.len()).min(site.live.len());
    if count == 0 {
        return Growth::Steady;
    }
    let stays = Stays::new(steps, site, count);
    match by_floor(&stays) {
        Growth::Grows(rise) => Growth::Grows(rise),
        _ if site.lost >= LEAST => Growth::Grows(Rise {
            blocks: site.lost,
            only_lost: true,
            ..stays.rise()
        }),
        other => other,
    }
}

/// Whether a call site grows by the blocks that stay, whether or not they are lost.
fn by_floor(stays: &Stays<'_>) -> Growth {
    let Stays {
        steps, site, count, ..
    } = *stays;
    let least = match steps.are_rounds {
        true => (count as u64 - 1).clamp(1, 2),
        false => LEAST,
    };
    let is_many = |number| number >= least;
    let highest = site.live[..count].iter().max().copied().unwrap_or(0);
    let highest = highest.saturating_sub(stays.base);
    // Of what rises and falls, the steps do not see the lowest: it seems to rise a little.
    if !steps.are_rounds && stays.total < highest / 4 {
        return match is_many(highest) {
            true => Growth::FellAgain,
            false => Growth::Steady,
        };
    }
    if !is_many(stays.total) {
        return Growth::Steady;
    }
    let rounds = stays.rounds();
    // Blocks that were loaded in one go, and some more.
    let in_rounds = steps.are_rounds || rounds + stays.in_first_step() >= stays.total / 2;
    let goes_on = stays.goes_on();
    match is_many(rounds) && in_rounds {
        true if goes_on && stays.is_above_before() => Growth::Grows(stays.rise()),
        false if goes_on && !steps.are_rounds => Growth::TooShort,
        _ => Growth::Steady,
    }
}

/// Whether a program freed almost everything at its end, and it took little time: then the run ends with the last allocation, and what
/// stayed until then counts. What fell more slowly fell again.
///
/// `before` and `after` are how many blocks were live at the last allocation and at the end, `falling` the time in between, `run` the time
/// since the first allocation.
///
/// ```
/// use std::time::Duration;
/// use cuguard_registry::is_teardown;
///
/// let seconds = Duration::from_secs;
/// assert!(is_teardown(1000, 0, seconds(1), seconds(60)));
/// assert!(!is_teardown(1000, 0, seconds(30), seconds(60)));
/// assert!(!is_teardown(1000, 900, seconds(1), seconds(60)));
/// ```
#[must_use]
pub fn is_teardown(before: u64, after: u64, falling: Duration, run: Duration) -> bool {
    after < before / 10 && falling < run / 4
}

/// In how many parts of equal length the ages of live blocks are counted, for [`growth_by_age`].
pub(crate) const AGES: usize = 16;

/// Whether a call site grows of which only the live blocks are known, by age, the oldest first. They are taken for blocks that stay, and
/// the program for one that works all the time. What it had before is unknown: if the blocks are all young, they may be those of a
/// cache.
pub(crate) fn growth_by_age(blocks: &[u64; AGES]) -> Growth {
    let mut live = blocks.to_vec();
    for age in 1..AGES {
        live[age] += live[age - 1];
    }
    let all = live[AGES - 1];
    let steps = Steps {
        times: vec![Duration::ZERO; AGES],
        work: (1..=AGES as u64)
            .map(|age| age * (all + 1) * (WORK + 1))
            .collect(),
        ..Steps::default()
    };
    let old: u64 = blocks[..AGES / 2].iter().sum();
    match old >= all / 4 {
        true => growth(
            &steps,
            &SiteSteps {
                live,
                ..SiteSteps::default()
            },
        ),
        false => Growth::Steady,
    }
}

/// The blocks of a call site that stay, by the step in which they were allocated.
struct Stays<'a> {
    steps: &'a Steps,
    site: &'a SiteSteps,
    /// How many steps are known of both.
    count: usize,
    by_step: Vec<u64>,
    total: u64,
    /// What stayed before the first round; 0 where the run begins with the first step.
    base: u64,
}

impl<'a> Stays<'a> {
    fn new(steps: &'a Steps, site: &'a SiteSteps, count: usize) -> Self {
        let mut by_step = site.live[..count].to_vec();
        // The floor: the least from each step to the end.
        for step in (1..count).rev() {
            by_step[step - 1] = by_step[step - 1].min(by_step[step]);
        }
        let floor_at_first = by_step[0];
        for step in (1..count).rev() {
            by_step[step] -= by_step[step - 1];
        }
        let base = if steps.are_rounds { floor_at_first } else { 0 };
        by_step[0] -= base;
        Self {
            steps,
            site,
            count,
            total: by_step.iter().sum(),
            by_step,
            base,
        }
    }

    fn rise(&self) -> Rise {
        Rise {
            blocks: self.total,
            first: self.step_of(0),
            last: self.step_of(self.total.saturating_sub(1)),
            only_lost: false,
        }
    }

    /// How many of them were allocated in the first step that has some.
    fn in_first_step(&self) -> u64 {
        self.steps().next().map_or(0, |(_, blocks)| blocks)
    }

    /// The steps in which blocks were allocated that stay, and how many.
    fn steps(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let steps = self.by_step.iter().copied().enumerate();
        steps.filter(|(_, blocks)| *blocks != 0)
    }

    /// The step of the nth block that stays, from 0.
    fn step_of(&self, nth: u64) -> usize {
        let mut before = 0;
        let step = self.steps().find(|(_, blocks)| {
            before += blocks;
            before > nth
        });
        step.map_or(0, |(step, _)| step)
    }

    fn rounds(&self) -> u64 {
        if self.steps.are_rounds {
            return self.steps().count() as u64;
        }
        let all = self.all_that_stay();
        let mut rounds = 1;
        let mut since = None;
        for (step, blocks) in self.steps() {
            let (work, time) = match since {
                Some(since) => {
                    let others = all.get(step).zip(all.get(since));
                    let stay = others.map_or(0, |(now, before)| now.saturating_sub(*before));
                    let work = self.steps.work[step].saturating_sub(self.steps.work[since]);
                    (
                        work.saturating_sub(stay.max(blocks)),
                        self.steps.times[step].saturating_sub(self.steps.times[since]),
                    )
                }
                // What was before the first block is not a round of it.
                None => (0, Duration::ZERO),
            };
            // By a half: a step begins and ends somewhere within a round.
            let is_work = work.saturating_mul(2) >= blocks.saturating_mul(2 * WORK - 1);
            let is_pause = time.as_nanos() >= PAUSE.as_nanos() * u128::from(blocks);
            if is_work || is_pause {
                rounds += blocks;
            }
            since = Some(step);
        }
        rounds
    }

    /// The floor of all call sites together.
    fn all_that_stay(&self) -> Vec<u64> {
        let mut all = self.steps.live.clone();
        for step in (1..all.len()).rev() {
            all[step - 1] = all[step - 1].min(all[step]);
        }
        all
    }

    /// Whether blocks stayed until the end.
    fn goes_on(&self) -> bool {
        let own_goes_on = |own: &[u64]| {
            self.is_spread(own, 1.25) && !self.is_filled_once(own) && !self.has_stopped(own)
        };
        if self.steps.are_rounds {
            return own_goes_on(&(0..self.count as u64).collect::<Vec<_>>());
        }
        // The program may do something else for as long as it grew.
        let goes_on = self.is_spread(&self.steps.work, 2.0);
        goes_on
            && self
                .site
                .allocated
                .get(..self.count)
                .is_none_or(own_goes_on)
    }

    /// Whether blocks stay throughout, by this measure: what comes after three quarters of them is not long, compared with the second and
    /// third quarter. Half as long, and one more distance, is expected.
    fn is_spread(&self, measure: &[u64], patience: f64) -> bool {
        let [first, last] = [0.25, 0.75].map(|part| self.quantile(measure, part));
        let after = measure[self.count - 1] as f64 - last;
        after - self.longest(measure) <= patience * (last - first)
    }

    /// Whether most blocks, but for the first quarter, stayed soon after it by this measure. A cache whose number of entries changes is
    /// filled once, and may seem to rise a little more until the end.
    fn is_filled_once(&self, measure: &[u64]) -> bool {
        let first = self.quantile(measure, 0.25);
        let soon = first + (measure[self.count - 1] as f64 - first) / 4.0;
        let before = |end: f64| -> f64 {
            let blocks = self.steps().map(|(step, blocks)| {
                let start = if step == 0 {
                    0.0
                } else {
                    measure[step - 1] as f64
                };
                let length = (measure[step] as f64 - start).max(1.0);
                blocks as f64 * ((end - start) / length).clamp(0.0, 1.0)
            });
            blocks.sum()
        };
        let (quarter, soon) = (before(first), before(soon));
        self.total >= LEAST && (soon - quarter) * 2.0 > self.total as f64 - quarter
    }

    /// Whether no block stayed for longer than between any two before, by this measure; a step more, as blocks are anywhere in a step.
    fn has_stopped(&self, measure: &[u64]) -> bool {
        let last = self.step_of(self.total - 1);
        let next = match self.steps.are_rounds {
            true => last,
            false => (last + 1).min(self.count - 1),
        };
        let since = measure[self.count - 1].saturating_sub(measure[next]);
        since as f64 > 2.0 * self.longest(measure)
    }

    /// Where a part of the blocks have been allocated, by a measure.
    fn quantile(&self, measure: &[u64], part: f64) -> f64 {
        let nth = part * (self.total - 1) as f64;
        let [before, behind] = [nth.floor(), nth.ceil()].map(|nth| self.position(measure, nth));
        before + (behind - before) * nth.fract()
    }

    /// Where the nth block is by a measure, as if those of one step were evenly spaced in it.
    fn position(&self, measure: &[u64], nth: f64) -> f64 {
        let mut before = 0.0;
        for (step, blocks) in self.steps() {
            let blocks = blocks as f64;
            if nth < before + blocks {
                let start = if step == 0 { 0 } else { measure[step - 1] };
                let length = measure[step].saturating_sub(start) as f64;
                return start as f64 + length * (nth - before + 1.0) / blocks;
            }
            before += blocks;
        }
        measure[self.count - 1] as f64
    }

    /// The longest distance between two blocks by a measure, of the second and third quarter, as if those of one step were evenly spaced;
    /// those of one round are not.
    fn longest(&self, measure: &[u64]) -> f64 {
        let last = self.total - 1;
        let [begins, ends] = [last / 4, (last * 3).div_ceil(4)].map(|nth| self.step_of(nth));
        let mut longest = 0.0_f64;
        let mut since: Option<usize> = None;
        let steps = self.steps();
        for (step, blocks) in steps.filter(|(step, _)| (begins..=ends).contains(step)) {
            if let Some(since) = since {
                let distance = measure[step].saturating_sub(measure[since]) as f64;
                let blocks = if self.steps.are_rounds { 1 } else { blocks };
                longest = longest.max(distance / blocks as f64);
            }
            since = Some(step);
        }
        longest
    }

    /// Whether more is live at the end than ever before: by a quarter than before half of the blocks that stay, because the steps have
    /// hardly seen the highest. Where the number of live blocks goes up and down, its least to the end rises at the end.
    fn is_above_before(&self) -> bool {
        let own = |live: u64| u128::from(live.saturating_sub(self.base));
        let before = |nth: u64| {
            let before = &self.site.live[..self.step_of(nth)];
            own(before.iter().max().copied().unwrap_or(0))
        };
        let (last, end) = (self.total - 1, own(self.site.live[self.count - 1]));
        end * 4 > before(last / 2) * 5 && end > before(last - last / 4)
    }
}
