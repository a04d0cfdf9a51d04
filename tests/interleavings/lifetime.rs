//! Invariant 4 (src/core/mod.rs): the thread that drops the last guard of a dropped context tears it down,
//! once, after every free. Invariant 3: what is dropped in a host function is queued until another thread
//! frees it, and keeps the context open until then (src/core/release).

use super::{Model, explore};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    /// Frees what the thread's guard owns.
    Free,
    /// Drops the thread's share in what keeps the context open; the last one tears it down.
    Release,
    /// The mistake: looks whether it is the last, and drops its share in a second step.
    Look,
    ReleaseAsLooked,
    /// In a host function: queues the guard, with its share, for somebody else.
    Defer,
    /// The mistake: queues the guard without its share.
    DeferWithoutShare,
    /// The last opportunity: waits until host functions have returned.
    WaitForHost,
    /// Takes the queue, frees what is in it, and drops its shares.
    TakeQueue,
    FreeQueued,
    ReleaseQueued,
}
use Step::*;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    programs: Vec<&'static [Step]>,
    at: Vec<usize>,
    /// How many share what keeps the context open.
    shares: usize,
    looked: Vec<usize>,
    /// What is owned and not freed.
    alive: usize,
    /// Whether each queued guard has its share with it.
    queue: Vec<bool>,
    taken: Vec<bool>,
    torn_down: usize,
    wrong: Option<&'static str>,
}

impl World {
    /// Each thread has a guard, but for the one that takes the queue; that one has the context.
    fn new(programs: &[&'static [Step]]) -> Self {
        let owns = |program: &&&'static [Step]| !program.contains(&TakeQueue);
        let alive = programs.iter().filter(owns).count();
        Self {
            programs: programs.to_vec(),
            at: vec![0; programs.len()],
            shares: programs.len(),
            looked: vec![0; programs.len()],
            alive,
            queue: Vec::new(),
            taken: Vec::new(),
            torn_down: 0,
            wrong: None,
        }
    }

    fn free(&mut self) {
        self.alive -= 1;
        if self.torn_down != 0 {
            self.wrong = Some("freed after the teardown");
        }
    }

    fn release(&mut self) {
        self.shares -= 1;
        if self.shares == 0 {
            self.tear_down();
        }
    }

    fn tear_down(&mut self) {
        self.torn_down += 1;
        if self.alive != 0 {
            self.wrong = Some("torn down before the last free");
        }
    }

    /// Takes a step; false where the thread has to wait.
    fn step(&mut self, n: usize, step: Step) -> bool {
        match step {
            Free => self.free(),
            Release => self.release(),
            Look => self.looked[n] = self.shares,
            ReleaseAsLooked => {
                self.shares -= 1;
                if self.looked[n] == 1 {
                    self.tear_down();
                }
            }
            Defer => self.queue.push(true),
            DeferWithoutShare => {
                self.queue.push(false);
                self.release();
            }
            WaitForHost => {
                let mut others = self.programs.iter().zip(&self.at);
                let is_host = |step: &Step| matches!(step, Defer | DeferWithoutShare);
                if others.any(|(program, at)| program[*at..].iter().any(is_host)) {
                    return false;
                }
            }
            TakeQueue => self.taken = std::mem::take(&mut self.queue),
            FreeQueued if self.taken.is_empty() => {}
            FreeQueued => self.free(),
            ReleaseQueued => {
                if self.taken.pop() == Some(true) {
                    self.release();
                }
                if !self.taken.is_empty() {
                    self.at[n] -= 2;
                }
            }
        }
        self.at[n] += 1;
        true
    }
}

impl Model for World {
    fn next(&self) -> Vec<Self> {
        let mut all = Vec::new();
        for (n, program) in self.programs.iter().enumerate() {
            if let Some(step) = program.get(self.at[n]) {
                let mut next = self.clone();
                if next.step(n, *step) {
                    all.push(next);
                }
            }
        }
        all
    }

    fn wrong(&self) -> Option<&'static str> {
        let lost = self.is_over() && (self.alive, self.torn_down) != (0, 1);
        self.wrong.or(lost.then_some("not torn down once"))
    }

    fn is_over(&self) -> bool {
        let mut threads = self.programs.iter().zip(&self.at);
        threads.all(|(program, at)| *at >= program.len())
    }
}

const GUARD: &[Step] = &[Free, Release];
const GUARD_THAT_LOOKS: &[Step] = &[Free, Look, ReleaseAsLooked];
const IN_HOST_FUNCTION: &[Step] = &[Defer];
const IN_HOST_FUNCTION_WITHOUT_SHARE: &[Step] = &[DeferWithoutShare];

/// The context is dropped at first, and an operation comes later; another one while they run.
const CONTEXT: &[Step] = &[
    Release,
    TakeQueue,
    FreeQueued,
    ReleaseQueued,
    WaitForHost,
    TakeQueue,
    FreeQueued,
    ReleaseQueued,
];

#[test]
fn the_last_guard_tears_down_once() {
    let threads = [GUARD, GUARD, IN_HOST_FUNCTION, IN_HOST_FUNCTION, CONTEXT];
    let states = explore(World::new(&threads)).unwrap();
    assert!(states > 100, "{states}");
}

#[test]
fn a_count_that_is_looked_at_first_is_found() {
    explore(World::new(&[GUARD, CONTEXT])).unwrap();
    let found = explore(World::new(&[GUARD_THAT_LOOKS, GUARD_THAT_LOOKS, CONTEXT]));
    assert_eq!(found.unwrap_err(), "not torn down once");
}

#[test]
fn a_queue_that_keeps_no_context_open_is_found() {
    let found = explore(World::new(&[IN_HOST_FUNCTION_WITHOUT_SHARE, CONTEXT]));
    assert_eq!(found.unwrap_err(), "torn down before the last free");
}
