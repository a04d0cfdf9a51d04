//! Whether a call site grows. This file has the only definition; the auditor, the out-of-memory diagnosis, recordings and
//! `assert_no_growth!` call it.
//!
//! A run is a sequence of *steps*, which are numbers of operations and not of seconds: allocations, frees, kernel launches. The
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
//!    between two of them the program does something else, [`WORK`] operations for each block, or nothing for [`PAUSE`];
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
    /// How many operations the program had done: allocations, frees, kernel launches.
    pub work: Vec<u64>,
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
///     are_rounds: false,
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
        are_rounds: false,
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
        let mut rounds = 1;
        let mut since = None;
        for (step, blocks) in self.steps() {
            let (work, time) = match since {
                Some(since) => (
                    self.steps.work[step].saturating_sub(self.steps.work[since]),
                    self.steps.times[step].saturating_sub(self.steps.times[since]),
                ),
                // What was before the first block is no round of it.
                None => (0, Duration::ZERO),
            };
            // By a half: a step begins and ends somewhere within a round.
            let is_work = work.saturating_sub(blocks) * 2 >= blocks * (2 * WORK - 1);
            let is_pause = time.as_nanos() >= PAUSE.as_nanos() * u128::from(blocks);
            if is_work || is_pause {
                rounds += blocks;
            }
            since = Some(step);
        }
        rounds
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{AGES, Growth, SiteSteps, Steps, growth, growth_by_age};

    /// A run of events, one call site under test.
    #[derive(Default)]
    struct Run {
        steps: Steps,
        site: SiteSteps,
        now: Duration,
        work: u64,
        live: u64,
        allocated: u64,
    }

    impl Run {
        fn step(&mut self) -> &mut Self {
            self.steps.times.push(self.now);
            self.steps.work.push(self.work);
            self.site.live.push(self.live);
            self.site.allocated.push(self.allocated);
            self
        }

        fn allocate(&mut self) -> &mut Self {
            self.live += 1;
            self.allocated += 1;
            self.work += 1;
            self.step()
        }

        fn free(&mut self) -> &mut Self {
            self.live -= 1;
            self.work += 1;
            self
        }

        /// Something else: so many operations in so many milliseconds.
        fn works(&mut self, operations: u64, milliseconds: u64) -> &mut Self {
            self.work += operations;
            self.now += Duration::from_millis(milliseconds);
            self
        }

        /// The verdict, also where only some of the steps are known.
        #[track_caller]
        fn verdict(&mut self) -> Growth {
            self.step();
            let all = growth(&self.steps, &self.site);
            let count = self.steps.work.len();
            for every in [2, 3, 7].into_iter().filter(|every| count / every >= 40) {
                fn some<T: Copy>(list: &[T], every: usize) -> Vec<T> {
                    let last = list.len() - 1;
                    let is_kept = |index: &usize| index.is_multiple_of(every) || *index == last;
                    (0..=last)
                        .filter(is_kept)
                        .map(|index| list[index])
                        .collect()
                }
                let steps = Steps {
                    times: some(&self.steps.times, every),
                    work: some(&self.steps.work, every),
                    are_rounds: false,
                };
                let site = SiteSteps {
                    live: some(&self.site.live, every),
                    allocated: some(&self.site.allocated, every),
                    lost: self.site.lost,
                };
                let few = growth(&steps, &site);
                assert_eq!(
                    few.rise().is_some(),
                    all.rise().is_some(),
                    "{every}: {few:?}"
                );
            }
            all
        }

        #[track_caller]
        fn grows(&mut self) {
            let verdict = self.verdict();
            assert!(verdict.rise().is_some(), "{verdict:?}");
        }
    }

    fn run() -> Run {
        Run::default()
    }

    #[test]
    fn a_leak_grows_whatever_the_program_does_besides() {
        for work in [2, 3, 10, 1000] {
            for rounds in [5, 6, 7, 20, 500] {
                let mut run = run();
                for _ in 0..rounds {
                    run.allocate().works(work, 1);
                }
                run.grows();
                // Then it idles, or does something else for a while.
                run.works(0, 100_000).grows();
                run.works(rounds * work / 2, 1).grows();
            }
        }
    }

    #[test]
    fn a_leak_that_begins_late_grows() {
        let mut run = run();
        for _ in 0..4000 {
            run.allocate().works(3, 1).free();
        }
        for _ in 0..100 {
            run.allocate().works(3, 1);
        }
        run.grows();
    }

    /// A leak that happens by chance may have a long time without any at the end.
    #[test]
    fn leaks_by_chance_grow() {
        let mut found = 0;
        for first in 0..1000_u32 {
            let mut seed = first;
            let mut random = |below: u32| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (seed >> 16) % below
            };
            let mut run = run();
            let (in_all, rounds) = (2 + random(12), 300 + random(300));
            for _ in 0..rounds {
                run.allocate().works(2 + u64::from(random(6)), 1);
                if random(in_all) != 0 {
                    run.free();
                }
            }
            run.step();
            found += u32::from(growth(&run.steps, &run.site).rise().is_some());
        }
        assert!(found >= 990, "{found}");
    }

    #[test]
    fn a_leak_now_and_then_grows() {
        let mut run = run();
        for round in 0..400 {
            run.allocate().works(4, 1);
            if round % 37 != 5 {
                run.free();
            }
        }
        run.grows();
    }

    #[test]
    fn a_block_at_a_time_grows() {
        let mut run = run();
        for _ in 0..6 {
            run.allocate().works(0, 800);
        }
        run.grows();
    }

    #[test]
    fn lost_blocks_grow_however_fast() {
        let mut run = run();
        for _ in 0..2000 {
            run.allocate();
        }
        assert_eq!(run.verdict(), Growth::TooShort);
        run.site.lost = 5;
        let rise = run.verdict().rise().unwrap();
        assert_eq!((rise.blocks, rise.only_lost), (5, true));
        run.site.lost = 2000;
        run.grows();
        run.works(100_000, 1000).grows();
        run.site.lost = 4;
        assert_eq!(run.verdict(), Growth::Steady);
    }

    #[test]
    fn what_is_loaded_does_not_grow() {
        for (between, pause) in [(0, 0), (0, 50), (1, 20)] {
            let mut run = run();
            for _ in 0..100 {
                run.allocate().works(between, pause);
            }
            assert_eq!(run.verdict(), Growth::TooShort, "{between} {pause}");
            run.works(1000, 1000);
            assert_eq!(run.verdict(), Growth::Steady, "{between} {pause}");
        }
        // With temporary blocks.
        let mut run = run();
        for _ in 0..100 {
            run.allocate().works(4, 10);
        }
        run.works(2000, 1000);
        assert_eq!(run.verdict(), Growth::Steady);
    }

    /// Also where a step has some of the blocks and the work after them.
    #[test]
    fn what_is_loaded_before_a_little_work_does_not_grow() {
        for blocks in 70..300_u64 {
            for every in [1, 4, 9] {
                let mut run = run();
                for block in 0..blocks {
                    run.allocate();
                    if block % every != 0 {
                        run.steps.times.pop();
                        run.steps.work.pop();
                        run.site.live.pop();
                        run.site.allocated.pop();
                    }
                }
                run.works(40, 5).step();
                let verdict = growth(&run.steps, &run.site);
                assert_eq!(verdict.rise(), None, "{blocks} {every}: {verdict:?}");
            }
        }
    }

    #[test]
    fn caches_do_not_grow() {
        // Full after a while: each entry replaces another.
        for capacity in [1, 5, 10, 80, 200] {
            let mut run = run();
            for round in 0..400 {
                if round >= capacity {
                    run.free();
                }
                run.allocate().works(2, 1);
            }
            assert_eq!(run.verdict(), Growth::Steady, "{capacity}");
        }
        // Emptied when it is full, wherever the run ends.
        for rounds in (250..400).step_by(7) {
            let mut run = run();
            for round in 0..rounds {
                if round % 100 == 99 {
                    for _ in 0..run.live {
                        run.free();
                    }
                }
                run.allocate().works(2, 1);
            }
            assert_eq!(run.verdict().rise(), None, "{rounds}");
        }
        // Limited in bytes, so that the number of entries changes.
        for first in 0..200_u32 {
            let mut run = run();
            let mut seed = first;
            for _ in 0..800 + first {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let most = 20 + u64::from(seed >> 28);
                while run.live >= most {
                    run.free();
                }
                run.allocate().works(2, 1);
            }
            assert_eq!(run.verdict(), Growth::Steady, "{first}");
        }
    }

    #[test]
    fn what_is_freed_before_the_end_fell_again() {
        let mut run = run();
        for _ in 0..300 {
            run.allocate().works(2, 10);
        }
        for _ in 0..300 {
            run.free().works(0, 10);
        }
        assert_eq!(run.verdict(), Growth::FellAgain);
    }

    #[test]
    fn few_blocks_are_steady() {
        let mut run = run();
        assert_eq!(growth(&run.steps, &run.site), Growth::Steady);
        for _ in 0..4 {
            run.allocate().works(1000, 1000);
        }
        assert_eq!(run.verdict(), Growth::Steady);
        // Temporary blocks.
        for _ in 0..1000 {
            run.allocate().works(3, 1).free();
        }
        assert_eq!(run.verdict(), Growth::Steady);
    }

    #[test]
    fn blocks_of_all_ages_grow() {
        let grows = |blocks| growth_by_age(&blocks).rise().is_some();
        assert!(grows([1; AGES]) && grows([1000; AGES]));
        assert!(grows(std::array::from_fn(|age| u64::from(age % 3 == 0))));
        // From the middle on.
        assert!(grows(std::array::from_fn(|age| u64::from(age >= 6))));
        assert!(!grows([0; AGES]));
        // Loaded at the beginning, and a cache, or a leak that began late.
        assert!(!grows(std::array::from_fn(|age| 100 * u64::from(age < 3))));
        assert!(!grows(std::array::from_fn(|age| 100 * u64::from(age > 12))));
    }

    fn rounds(live: &[u64]) -> bool {
        let steps = Steps {
            times: vec![Duration::ZERO; live.len()],
            work: vec![0; live.len()],
            are_rounds: true,
        };
        let site = SiteSteps {
            live: live.to_vec(),
            ..SiteSteps::default()
        };
        growth(&steps, &site).rise().is_some()
    }

    fn each(rounds: u64, live: impl FnMut(u64) -> u64) -> Vec<u64> {
        (0..=rounds).map(live).collect()
    }

    #[test]
    fn rounds_that_leave_blocks_grow() {
        assert!(rounds(&[0, 1]) && rounds(&[5, 6, 7, 8]));
        assert!(rounds(&each(20, |round| 100 + round)));
        // In every eighth, whenever that is.
        for first in 0..8 {
            assert!(
                rounds(&each(20, |round| 50 + (round + first) / 8)),
                "{first}"
            );
        }
        // Several at a time, wherever the last iteration is.
        for last in 20..28 {
            assert!(
                rounds(&each(last, |round| (round + 1) / 4 * 4096)),
                "{last}"
            );
        }
        // From the twelfth of 20.
        assert!(rounds(&each(20, |round| round.saturating_sub(12))));
        assert!(rounds(&each(40, |round| round / 5 * 100 + round % 3 * 40)));
    }

    #[test]
    fn rounds_that_fill_a_cache_do_not() {
        assert!(!rounds(&[]) && !rounds(&[3]) && !rounds(&[5, 5]) && !rounds(&[5, 4]));
        for capacity in 1..=16 {
            assert!(
                !rounds(&each(20, |round| round.min(capacity))),
                "{capacity}"
            );
        }
        assert!(!rounds(&[0, 0, 0, 0, 0, 100, 100, 100, 100]));
        assert!(!rounds(&[1, 2, 1, 2, 1, 2, 1, 2, 1]));
        for rounds_run in 20..40 {
            assert!(
                !rounds(&each(rounds_run, |round| round % 10)),
                "{rounds_run}"
            );
        }
    }
}
