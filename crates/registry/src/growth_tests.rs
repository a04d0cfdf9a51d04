//! Tests of growth: runs of events, and what they are called.

use std::time::Duration;

use crate::growth::{AGES, Growth, SiteSteps, Steps, growth, growth_by_age};

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
                live: Vec::new(),
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

/// From three lines in turn, with or without a temporary block for each of them.
#[test]
fn what_several_call_sites_load_does_not_grow() {
    let load = |temporary: u64| {
        let mut run = run();
        for round in 1..=100 {
            run.allocate().works(2 + temporary, 10);
            run.steps.live.push(3 * round - 2);
        }
        growth(&run.steps, &run.site)
    };
    assert_eq!(load(0), Growth::TooShort);
    assert!(load(2).rise().is_some());
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
        ..Steps::default()
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
