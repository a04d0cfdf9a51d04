//! The byte counters (src/registry/counters.rs): the first thread that comes owns them and adds in two
//! steps, until a second one takes that right away.

use super::processor::{Barrier, Processor, Step, branch, wait_while};
use super::{Model, explore};
use Step::*;

const BYTES: usize = 0;
const OWNER: usize = 1;
/// Who owns the bytes: a thread, whose number is its lane's and begins with 1, or one of these.
const NOBODY_YET: i8 = 0;
const CHANGING: i8 = -1;
const EVERYBODY: i8 = -2;
/// Held by who changes the owner.
const LOCK: usize = 2;
/// The most threads that there are.
const MOST: usize = 3;

/// A lane's thread changes bytes that it owns.
fn busy(lane: i8) -> usize {
    LOCK + lane as usize
}

/// A thread has added its byte: known to itself only.
fn done(lane: i8) -> usize {
    LOCK + MOST + lane as usize
}

const LOST: &str = "bytes were lost";

#[derive(Clone, Copy)]
struct How {
    barrier: Barrier,
    /// Whether the owner looks whether it still is the owner, once it is busy.
    looks_again: bool,
    /// Whether who takes the right away waits until the owner is not busy.
    waits: bool,
}

const RIGHT: How = How {
    barrier: Barrier::Kernel,
    looks_again: true,
    waits: true,
};

/// Takes the bytes from the owner.
fn take_away(how: How, owner: i8, threads: usize) -> Vec<Step> {
    let mut program = vec![Store(OWNER, CHANGING)];
    program.extend(how.barrier.heavy(threads));
    if how.waits {
        program.extend(wait_while(busy(owner)));
    }
    program.push(Store(OWNER, EVERYBODY));
    program
}

/// Makes the thread the first owner, or takes the bytes from their owner.
fn change_owner(how: How, me: i8, threads: usize) -> Vec<Step> {
    let others = (1..=threads as i8).filter(|other| *other != me);
    // It is everybody's, or has changed since the caller looked.
    let mut choose = Vec::new();
    for other in others {
        choose = branch(other, take_away(how, other, threads), choose);
    }
    choose = branch(NOBODY_YET, vec![Store(OWNER, me)], choose);
    [vec![Lock(LOCK), Load(OWNER)], choose, vec![Store(LOCK, 0)]].concat()
}

/// Adds one byte on a thread.
fn add(how: How, me: i8, threads: usize) -> Vec<Step> {
    let (busy, done) = (busy(me), done(me));
    let alone = vec![Load(BYTES), StoreSum(BYTES, 1), Note(done, 1)];
    let mut as_owner = vec![Store(busy, 1)];
    as_owner.extend(how.barrier.light());
    if how.looks_again {
        as_owner.push(Load(OWNER));
        as_owner.extend(branch(me, alone, vec![]));
    } else {
        as_owner.extend(alone);
    }
    as_owner.push(Store(busy, 0));
    let together = vec![AddAtOnce(BYTES, 1), Note(done, 1)];

    let mut program = vec![Load(OWNER)];
    program.extend(branch(EVERYBODY, together, branch(me, as_owner, vec![])));
    program.push(Load(done));
    program.extend(branch(1, vec![], change_owner(how, me, threads)));
    // It looks at the owner again until it is done.
    let begin = -(program.len() as isize) - 1;
    program.extend([Load(done), IfNot(1, begin), Note(done, 0)]);
    program
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Counters {
    processor: Processor,
    sum: i8,
}

impl Counters {
    /// So many threads that add so often.
    fn new(how: How, threads: usize, times: usize) -> Self {
        let program = |n: usize| add(how, n as i8, threads).repeat(times);
        let programs: Vec<_> = (1..=threads).map(program).collect();
        Self {
            processor: Processor::new(LOCK + 2 * MOST + 1, &programs),
            sum: (threads * times) as i8,
        }
    }
}

impl Model for Counters {
    fn next(&self) -> Vec<Self> {
        let sum = self.sum;
        let all = self.processor.next().into_iter();
        all.map(|processor| Self { processor, sum }).collect()
    }

    fn wrong(&self) -> Option<&'static str> {
        let lost = self.is_over() && self.processor.memory[BYTES] != self.sum;
        lost.then_some(LOST)
    }

    fn is_over(&self) -> bool {
        self.processor.is_over()
    }
}

#[test]
fn no_byte_is_lost_when_the_owner_changes() {
    let states = explore(Counters::new(RIGHT, 2, 3)).unwrap();
    assert!(states > 1_000, "{states}");
    let states = explore(Counters::new(RIGHT, 3, 1)).unwrap();
    assert!(states > 1_000, "{states}");
}

#[test]
fn a_missing_barrier_is_found() {
    for barrier in [
        Barrier::SeldomOnly,
        Barrier::OftenOnly,
        Barrier::KernelAlone,
    ] {
        let how = How { barrier, ..RIGHT };
        assert_eq!(explore(Counters::new(how, 2, 2)), Err(LOST));
    }
}

#[test]
fn a_second_thread_that_does_not_wait_is_found() {
    let how = How {
        waits: false,
        ..RIGHT
    };
    assert_eq!(explore(Counters::new(how, 2, 2)), Err(LOST));
}

#[test]
fn an_owner_that_does_not_look_again_is_found() {
    let looks_again = false;
    let how = How {
        looks_again,
        ..RIGHT
    };
    assert_eq!(explore(Counters::new(how, 2, 2)), Err(LOST));
}
