//! The slots of a lane (src/registry/recent.rs): its thread writes to them without a lock, and visitors
//! move what is there to the table. Here a lane has one slot, so that each record makes the one before
//! it move too.

use super::processor::{Barrier, Processor, Step, branch, wait_while};
use super::{Model, explore};
use Step::*;

/// The lane's thread is at work in the slot.
const BUSY: usize = 0;
const STATE: usize = 1;
const OPEN: i8 = 0;
const WANTED: i8 = 1;
const OFF: i8 = 2;
/// The number of the record in the slot, from 1 on.
const SLOT: usize = 2;
/// One visitor at a time.
const VISITOR: usize = 3;
/// The records that the table has. Its locks make each step there happen at once.
const TABLE: usize = 4;
const RECORDS: usize = 4;
/// The guard of a record was sent to another thread, which is to free it.
const SENT: usize = TABLE + RECORDS;
/// What is known to be allocated, and not about to be freed.
const LIVE: usize = SENT + RECORDS;

const LOST: &str = "the record of what is freed is not found";
const MISSING: &str = "a snapshot misses a record";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Visit {
    /// As in the source. It opens the slot again, or switches the lane off.
    Opens,
    SwitchesOff,
    /// As in the source, but the slot is free before its record is in the table.
    FreesFirst,
    /// A mistake: does not wait for the lane's thread.
    DoesNotWait,
    /// A mistake: opens the slot before it has moved the record.
    OpensFirst,
}

/// How threads do it.
#[derive(Clone, Copy)]
struct How {
    barrier: Barrier,
    visit: Visit,
    /// Whether who does not find a record in the table has it moved there, and looks again.
    looks_again: bool,
}

const RIGHT: How = How {
    barrier: Barrier::Kernel,
    visit: Visit::Opens,
    looks_again: true,
};

const THREADS: usize = 3;

/// The lane's thread at work in its slot, or something else where a visitor is there.
fn own(how: How, work: &[Step], otherwise: Vec<Step>) -> Vec<Step> {
    let mut program = vec![Store(BUSY, 1)];
    program.extend(how.barrier.light());
    program.push(Load(STATE));
    let inside = [work, &[Store(BUSY, 0)]].concat();
    let outside = [vec![Store(BUSY, 0)], otherwise].concat();
    program.extend(branch(OPEN, inside, outside));
    program
}

/// The record in the slot, if any, goes into the table.
fn put_slot() -> Vec<Step> {
    [vec![Load(SLOT)], branch(0, vec![], vec![SwapAt(TABLE, 1)])].concat()
}

fn insert(how: How, record: usize) -> Vec<Step> {
    let mut work = put_slot();
    work.push(Store(SLOT, record as i8));
    let mut program = own(how, &work, vec![Swap(TABLE + record, 1)]);
    program.push(Note(LIVE + record, 1));
    program
}

/// A visitor of the one lane there is.
fn visit(how: How) -> Vec<Step> {
    let mut work = vec![Store(STATE, WANTED)];
    work.extend(how.barrier.heavy(THREADS));
    if how.visit != Visit::DoesNotWait {
        work.extend(wait_while(BUSY));
    }
    if how.visit == Visit::OpensFirst {
        work.push(Store(STATE, OPEN));
    }
    if how.visit == Visit::FreesFirst {
        let put = vec![Store(SLOT, 0), SwapAt(TABLE, 1)];
        work.push(Load(SLOT));
        work.extend(branch(0, vec![], put));
    } else {
        work.extend(put_slot());
        work.push(Store(SLOT, 0));
    }
    match how.visit {
        Visit::SwitchesOff => work.push(Store(STATE, OFF)),
        Visit::OpensFirst => {}
        _ => work.push(Store(STATE, OPEN)),
    }
    let mut program = vec![Lock(VISITOR), Load(STATE)];
    program.extend(branch(OFF, vec![], work));
    program.push(Store(VISITOR, 0));
    program
}

/// Takes a record out whose lane has a visitor, or another thread; `settle` has it moved to the table.
fn remove_elsewhere(how: How, record: usize, settle: Vec<Step>) -> Vec<Step> {
    let take = vec![Swap(TABLE + record, 0)];
    let again = match how.looks_again {
        true => [settle, take.clone()].concat(),
        false => Vec::new(),
    };
    let hidden = [take.clone(), branch(0, again, vec![])].concat();
    let mut program = vec![Load(STATE)];
    program.extend(branch(OFF, take, hidden));
    program.push(Must(LOST));
    program
}

/// On the lane's thread.
fn remove(how: How, record: usize) -> Vec<Step> {
    let settle = [put_slot(), vec![Store(SLOT, 0)]].concat();
    let settle = own(how, &settle, visit(how));
    let in_table = vec![Swap(TABLE + record, 0), Must(LOST)];
    let mut work = vec![Load(SLOT)];
    work.extend(branch(record as i8, vec![Store(SLOT, 0)], in_table));
    let mut program = vec![Note(LIVE + record, 0)];
    program.extend(own(how, &work, remove_elsewhere(how, record, settle)));
    program
}

/// The lane's thread: frees the second record itself, sends the first away, and keeps the third.
fn lane(how: How) -> Vec<Step> {
    let sent = vec![Swap(SENT + 1, 1)];
    let all = [insert(how, 1), insert(how, 2), sent];
    [all.concat(), remove(how, 2), insert(how, 3)].concat()
}

/// Another thread, which frees what it is sent.
fn freer(how: How) -> Vec<Step> {
    let mut program = vec![WaitFor(SENT + 1), Note(LIVE + 1, 0)];
    program.extend(remove_elsewhere(how, 1, visit(how)));
    program
}

/// One who looks at all records.
fn snapshot(how: How) -> Vec<Step> {
    let mut program = vec![Remember(LIVE, RECORDS)];
    program.extend(visit(how));
    program.push(Compare(LIVE, TABLE, MISSING));
    program
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Lane(Processor);

impl Lane {
    fn new(how: How) -> Self {
        let threads: [_; THREADS] = [lane(how), freer(how), snapshot(how)];
        Self(Processor::new(LIVE + RECORDS, &threads))
    }
}

impl Model for Lane {
    fn next(&self) -> Vec<Self> {
        self.0.next().into_iter().map(Self).collect()
    }

    fn wrong(&self) -> Option<&'static str> {
        let memory = &self.0.memory;
        let times = |record: usize| {
            let in_slot = memory[SLOT] as usize == record;
            i8::from(in_slot) + memory[TABLE + record]
        };
        let end = self.is_over() && (1..RECORDS).any(|n| times(n) != i8::from(n == 3));
        self.0
            .wrong
            .or(end.then_some("not the records that are left"))
    }

    fn is_over(&self) -> bool {
        self.0.is_over()
    }
}

#[test]
fn no_record_is_lost_and_none_stays() {
    for visit in [Visit::Opens, Visit::SwitchesOff] {
        let states = explore(Lane::new(How { visit, ..RIGHT })).unwrap();
        assert!(states > 10_000, "{states}");
    }
}

/// Who looks for a record without the visitors' lock looks again with it.
#[test]
fn a_slot_may_be_freed_before_its_record_is_in_the_table() {
    let visit = Visit::FreesFirst;
    explore(Lane::new(How { visit, ..RIGHT })).unwrap();
}

#[test]
fn a_missing_barrier_is_found() {
    for barrier in [
        Barrier::SeldomOnly,
        Barrier::OftenOnly,
        Barrier::KernelAlone,
    ] {
        assert!(explore(Lane::new(How { barrier, ..RIGHT })).is_err());
    }
}

#[test]
fn a_visitor_that_does_not_wait_is_found() {
    for visit in [Visit::DoesNotWait, Visit::OpensFirst] {
        assert!(explore(Lane::new(How { visit, ..RIGHT })).is_err());
    }
}

#[test]
fn a_record_that_is_looked_for_in_the_table_only_is_found() {
    let looks_again = false;
    let found = explore(Lane::new(How {
        looks_again,
        ..RIGHT
    }));
    assert_eq!(found, Err(LOST));
}
