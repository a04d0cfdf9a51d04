//! The threads that do the work of streams.
//!
//! They belong to no stream: a stream with work that may begin waits in line for the next thread,
//! so that a stream costs no thread while it is idle or waits for another one. A thread that finds
//! nothing to do goes home after a moment.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Condvar;
use std::time::Duration;

use cuguard_sys::CUresult;

use crate::handle::Id;
use crate::lock::{Guard, broken, lock};
use crate::machine::Answer;
use crate::os;

/// How long a thread waits for more to do.
const PATIENCE: Duration = Duration::from_millis(50);
/// So many threads at most. Only so many host functions can wait for something at a time; a
/// process that has more threads may come to an end of its own.
const MOST: usize = 1024;

/// Tells threads that a stream has joined the line.
static WORK: Condvar = Condvar::new();

#[derive(Debug, Default)]
pub(crate) struct Crew {
    /// The streams whose next piece of work may begin.
    ready: VecDeque<Id>,
    idle: usize,
    /// Threads that were made and have not begun.
    starting: usize,
    total: usize,
}

impl Crew {
    /// Makes sure that there is a thread for one more piece of work, beyond those in line.
    pub(crate) fn hire(&mut self) -> Answer {
        if self.ready.len() < self.idle + self.starting {
            return Ok(());
        }
        self.spawn()
    }

    fn spawn(&mut self) -> Answer {
        if self.total >= MOST {
            return Ok(());
        }
        std::thread::Builder::new()
            .name("cuguard-sim".to_owned())
            .spawn(work_off)
            .map_err(|_| CUresult::OPERATING_SYSTEM)?;
        self.total += 1;
        self.starting += 1;
        Ok(())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Puts a stream in line.
    pub(crate) fn enqueue(&mut self, stream: Id) {
        self.ready.push_back(stream);
        WORK.notify_one();
    }

    /// Puts a stream in line for the calling thread, which will look there next.
    pub(crate) fn enqueue_own(&mut self, stream: Id) {
        self.ready.push_back(stream);
    }

    /// Makes sure that somebody comes to those in line.
    pub(crate) fn rouse(&mut self) {
        if self.ready.len() > self.idle + self.starting {
            // Where no thread can be had, one of those there are comes to it in the end.
            let _ = self.spawn();
        }
        if !self.ready.is_empty() {
            WORK.notify_one();
        }
    }

    fn next(&mut self) -> Option<Id> {
        self.ready.pop_front()
    }
}

/// The life of a thread.
fn work_off() {
    let life = AssertUnwindSafe(|| {
        let mut machine = lock();
        machine.crew.starting -= 1;
        loop {
            if let Some(stream) = machine.crew.next() {
                machine = do_next(machine, stream);
                machine.clean_up();
                continue;
            }
            machine.crew.idle += 1;
            machine = machine.wait_for(&WORK, PATIENCE, |m| !m.crew.ready.is_empty());
            machine.crew.idle -= 1;
            if machine.crew.ready.is_empty() {
                machine.crew.total -= 1;
                return;
            }
        }
    });
    if let Err(panic) = catch_unwind(life) {
        // What the panic itself wrote, a test harness may have kept.
        let owned = panic.downcast_ref::<String>().map(String::as_str);
        if let Some(words) = owned.or_else(|| panic.downcast_ref::<&str>().copied()) {
            os::say(words);
        }
        broken();
    }
}

/// Does the work in line on the calling thread, if there is no other to do it: where not even one
/// thread is to be had, what became ready must not stay undone.
pub(crate) fn do_without_crew(mut machine: Guard) -> Guard {
    while machine.crew.is_empty()
        && let Some(stream) = machine.crew.next()
    {
        machine = do_next(machine, stream);
    }
    machine
}

/// Does the next piece of work of a stream.
fn do_next(mut machine: Guard, stream: Id) -> Guard {
    let latency = machine.config.latency;
    let Some(work) = machine.begin_work(stream) else {
        return machine;
    };
    drop(machine);
    if !latency.is_zero() {
        std::thread::sleep(latency);
    }
    // With the work goes its hold on memory, before anybody is told that it is done.
    if let Some(run) = work.run {
        run();
    }
    let mut machine = lock();
    if let Some(then) = work.then {
        then(&mut machine);
    }
    machine.complete(stream, work.number);
    machine
}
