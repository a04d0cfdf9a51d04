//! Law 2: into the registry after the driver allocated, out of it before the driver frees; with a
//! driver that hands an address out again as soon as it is free.

use std::collections::BTreeMap;

use super::{Model, explore};

/// What a thread does in one step. The driver and the registry each do theirs at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    /// Passes the gate; where it is closed, the thread goes on at the given step.
    Enter(usize),
    Leave,
    /// The driver gives out the lowest address that is free.
    Allocate,
    Insert,
    Erase,
    Free,
    /// The guard is forgotten: only teardown frees it.
    Forget,
    /// Closes the gate and waits until everybody is out; it takes two steps.
    Close,
    Wait,
    /// Takes one record out and frees it, until there is none; in two steps too.
    Reclaim,
    FreeReclaimed,
}
use Step::*;

/// Who allocated what an address stands for: a thread, and its how-manyth thing it is.
type Owner = (usize, usize);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Thread {
    program: &'static [Step],
    at: usize,
    allocated: usize,
    /// The address of the guard that the thread holds.
    holds: Option<usize>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    threads: Vec<Thread>,
    driver: BTreeMap<usize, Owner>,
    registry: BTreeMap<usize, Owner>,
    forgotten: usize,
    inside: usize,
    closed: bool,
    wrong: Option<&'static str>,
}

impl World {
    fn new(programs: &[&'static [Step]]) -> Self {
        let thread = |program: &&'static [Step]| Thread {
            program,
            at: 0,
            allocated: 0,
            holds: None,
        };
        Self {
            threads: programs.iter().map(thread).collect(),
            driver: BTreeMap::new(),
            registry: BTreeMap::new(),
            forgotten: 0,
            inside: 0,
            closed: false,
            wrong: None,
        }
    }

    fn free(&mut self, n: usize) {
        // The guard still knows the address, which a late erase would use.
        let address = self.threads[n].holds.expect("something to free");
        if self.driver.remove(&address).is_none() {
            self.wrong = Some("freed twice");
        }
    }

    /// Takes a step; false where the thread has to wait.
    fn step(&mut self, n: usize, step: Step) -> bool {
        let (at, allocated) = (self.threads[n].at, self.threads[n].allocated);
        let mut next = at + 1;
        match step {
            Enter(elsewhere) if self.closed => next = elsewhere,
            Enter(_) => self.inside += 1,
            Leave => self.inside -= 1,
            Allocate => {
                let free = (0..).find(|address| !self.driver.contains_key(address));
                let address = free.expect("there are many");
                self.driver.insert(address, (n, allocated));
                self.threads[n].holds = Some(address);
            }
            Insert => {
                let address = self.threads[n].holds.expect("something to insert");
                if self.registry.insert(address, (n, allocated)).is_some() {
                    self.wrong = Some("a record was written over");
                }
                self.threads[n].allocated += 1;
            }
            Erase => {
                let address = self.threads[n].holds.expect("something to erase");
                if self.registry.remove(&address) != Some((n, allocated - 1)) {
                    self.wrong = Some("the record of something else was erased");
                }
            }
            Free => self.free(n),
            Forget => {
                self.threads[n].holds = None;
                self.forgotten += 1;
            }
            Close => self.closed = true,
            Wait => {
                if self.inside > 0 {
                    return false;
                }
            }
            Reclaim => match self.registry.pop_first() {
                Some((address, _)) => self.threads[n].holds = Some(address),
                None => next = at + 2,
            },
            FreeReclaimed => {
                self.free(n);
                next = at - 1;
            }
        }
        self.threads[n].at = next;
        true
    }

    /// What the driver has and what the registry has, in the end.
    fn left(&self) -> (usize, usize) {
        (self.driver.len(), self.registry.len())
    }
}

impl Model for World {
    fn next(&self) -> Vec<Self> {
        let mut all = Vec::new();
        for (n, thread) in self.threads.iter().enumerate() {
            if let Some(step) = thread.program.get(thread.at) {
                let mut next = self.clone();
                if next.step(n, *step) {
                    all.push(next);
                }
            }
        }
        all
    }

    fn wrong(&self) -> Option<&'static str> {
        // Teardown frees what was forgotten too.
        let expected = if self.closed { 0 } else { self.forgotten };
        let lost = self.is_over() && self.left() != (expected, expected);
        self.wrong.or(lost.then_some("something was lost"))
    }

    fn is_over(&self) -> bool {
        let mut threads = self.threads.iter();
        threads.all(|thread| thread.at >= thread.program.len())
    }
}

/// Two things one after the other, in the order of the law.
const RIGHT: &[Step] = &[
    Allocate, Insert, Erase, Free, Allocate, Insert, Erase, Free, Allocate, Insert, Forget,
];

/// Erased after the driver freed it.
const ERASED_LATE: &[Step] = &[Allocate, Insert, Free, Erase];

#[test]
fn no_record_is_lost() {
    let states = explore(World::new(&[RIGHT, RIGHT, RIGHT])).unwrap();
    assert!(states > 1_000, "{states}");
}

/// The mistake that the law is about: another thread got the address in between, and its record is
/// the one that goes.
#[test]
fn a_record_that_is_erased_after_the_free_is_found() {
    // One thread alone never notices.
    explore(World::new(&[ERASED_LATE])).unwrap();
    let found = explore(World::new(&[ERASED_LATE, RIGHT])).unwrap_err();
    assert!(found.contains("record"), "{found}");
}

/// A guard that is allocated and dropped inside the gate, each in an operation of its own.
const GUARD: &[Step] = &[
    Enter(8),
    Allocate,
    Insert,
    Leave,
    Enter(8),
    Erase,
    Free,
    Leave,
];

/// The same, where the drop does not ask whether the context is still there.
const GUARD_THAT_DOES_NOT_ASK: &[Step] = &[Enter(6), Allocate, Insert, Leave, Erase, Free];

const FORGOTTEN: &[Step] = &[Enter(5), Allocate, Insert, Leave, Forget];

const TEARDOWN: &[Step] = &[Close, Wait, Reclaim, FreeReclaimed];

const TEARDOWN_THAT_DOES_NOT_WAIT: &[Step] = &[Close, Reclaim, FreeReclaimed];

/// Whatever teardown comes in between: each thing is freed once, by its guard or by teardown.
#[test]
fn teardown_and_drops_free_everything_once() {
    let states = explore(World::new(&[GUARD, GUARD, FORGOTTEN, TEARDOWN])).unwrap();
    assert!(states > 300, "{states}");
}

#[test]
fn a_drop_outside_the_gate_is_found() {
    let found = explore(World::new(&[GUARD_THAT_DOES_NOT_ASK, TEARDOWN]));
    assert!(found.is_err());
}

#[test]
fn a_teardown_that_does_not_wait_is_found() {
    let found = explore(World::new(&[GUARD, TEARDOWN_THAT_DOES_NOT_WAIT]));
    assert!(found.is_err());
}
