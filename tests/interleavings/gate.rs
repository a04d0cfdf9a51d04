//! The gate: operations, teardown and the end of the process, on a processor that makes a thread's
//! writes visible to the others some time later, in order.

use super::{Model, explore};

/// Variables. A lane's counter is `LANE + n`; the last lane is the one that threads share.
const CLOSED: usize = 0;
const EXITING: usize = 1;
const LANE: usize = 2;
const LANES: usize = 3;
const SHARED: usize = LANE + LANES - 1;

const TOGETHER: &str = "in the driver while another is to be alone there";

/// What a thread does in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Step {
    /// Reads a variable into the thread's register.
    Load(usize),
    /// Writes the register plus a number. Others see it later.
    StoreSum(usize, i8),
    /// Adds in one go, as a locked instruction does, which also waits for earlier writes.
    AddAtOnce(usize, i8),
    /// Writes in one go, and the register is what was there.
    Swap(usize, i8),
    /// Waits until others see what this thread wrote.
    Fence,
    /// Makes one thread's writes visible, as the kernel does to each in turn in `membarrier`.
    FenceIn(usize),
    /// Goes on elsewhere if the register is not zero.
    Unless(usize),
    /// Not a step of the program: it is now in the driver, or out of it.
    Driver(bool),
    /// From here on nobody else may be in the driver.
    Alone,
}
use Step::*;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Thread {
    program: &'static [Step],
    at: usize,
    register: i8,
    /// Writes that others do not see yet, in order.
    late: Vec<(usize, i8)>,
    in_driver: bool,
    alone: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Processor {
    memory: [i8; LANE + LANES],
    threads: Vec<Thread>,
}

impl Processor {
    fn new(programs: &[Vec<Step>]) -> Self {
        let thread = |program: &Vec<Step>| Thread {
            program: program.clone().leak(),
            at: 0,
            register: 0,
            late: Vec::new(),
            in_driver: false,
            alone: false,
        };
        Self {
            memory: [0; LANE + LANES],
            threads: programs.iter().map(thread).collect(),
        }
    }

    /// The oldest late write of a thread becomes visible.
    fn write_one(&mut self, n: usize) {
        let (variable, value) = self.threads[n].late.remove(0);
        self.memory[variable] = value;
    }

    fn write_all(&mut self, n: usize) {
        while !self.threads[n].late.is_empty() {
            self.write_one(n);
        }
    }

    fn step(&mut self, n: usize, step: Step) {
        self.threads[n].at += 1;
        match step {
            Load(variable) => {
                // A thread sees its own writes at once.
                let own = self.threads[n].late.iter().rev();
                let own = own.clone().find(|(which, _)| *which == variable);
                let value = own.map_or(self.memory[variable], |(_, value)| *value);
                self.threads[n].register = value;
            }
            StoreSum(variable, number) => {
                let thread = &mut self.threads[n];
                thread.late.push((variable, thread.register + number));
            }
            AddAtOnce(variable, number) => {
                self.write_all(n);
                self.memory[variable] += number;
            }
            Swap(variable, value) => {
                self.write_all(n);
                let before = std::mem::replace(&mut self.memory[variable], value);
                self.threads[n].register = before;
            }
            Fence => self.write_all(n),
            FenceIn(other) => self.write_all(other),
            Unless(target) => {
                if self.threads[n].register != 0 {
                    self.threads[n].at = target;
                }
            }
            Driver(inside) => self.threads[n].in_driver = inside,
            Alone => self.threads[n].alone = true,
        }
    }
}

impl Model for Processor {
    fn next(&self) -> Vec<Self> {
        let mut all = Vec::new();
        for (n, thread) in self.threads.iter().enumerate() {
            if let Some(step) = thread.program.get(thread.at) {
                let mut next = self.clone();
                next.step(n, *step);
                all.push(next);
            }
            if !thread.late.is_empty() {
                let mut next = self.clone();
                next.write_one(n);
                all.push(next);
            }
        }
        all
    }

    fn wrong(&self) -> Option<&'static str> {
        let alone = self.threads.iter().position(|thread| thread.alone)?;
        let others = self.threads.iter().enumerate().filter(|(n, _)| *n != alone);
        let mut busy = others.filter(|(_, thread)| thread.in_driver || thread.alone);
        busy.next().map(|_| TOGETHER)
    }

    fn is_over(&self) -> bool {
        let mut threads = self.threads.iter();
        threads.all(|thread| thread.at >= thread.program.len() && thread.late.is_empty())
    }
}

/// What stands between a write and the read that follows it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Barrier {
    /// src/fence.rs with `membarrier`: nothing in operations, all threads at teardown.
    Kernel,
    /// src/fence.rs without: one on each side.
    Both,
    /// A mistake: none in operations.
    TeardownOnly,
    /// A mistake: none at teardown, which writes like any other.
    OperationsOnly,
}

fn light(barrier: Barrier) -> Vec<Step> {
    match barrier {
        Barrier::Both | Barrier::OperationsOnly => vec![Fence],
        Barrier::Kernel | Barrier::TeardownOnly => Vec::new(),
    }
}

fn heavy(barrier: Barrier, threads: usize) -> Vec<Step> {
    match barrier {
        Barrier::Kernel => (0..threads).map(FenceIn).collect(),
        Barrier::Both | Barrier::TeardownOnly => vec![Fence],
        Barrier::OperationsOnly => Vec::new(),
    }
}

/// Counts in or out in a lane: in two steps where it is the thread's own.
fn count(lane: usize, number: i8) -> Vec<Step> {
    match lane {
        SHARED => vec![AddAtOnce(SHARED, number)],
        lane => vec![Load(lane), StoreSum(lane, number)],
    }
}

/// Appends a part that is left out when one of these variables is set.
fn unless(program: &mut Vec<Step>, variables: &[usize], part: &[Step]) {
    let end = program.len() + 2 * variables.len() + part.len();
    for variable in variables {
        program.extend([Load(*variable), Unless(end)]);
    }
    program.extend(part);
}

/// An operation: in, look, into the driver, out; so many times, each within the one before.
fn operation(lane: usize, barrier: Barrier, nested: usize) -> Vec<Step> {
    let mut program = Vec::new();
    for _ in 0..nested {
        program.extend(count(lane, 1));
        program.extend(light(barrier));
        let calls = [Driver(true), Driver(false)];
        unless(&mut program, &[CLOSED, EXITING], &calls);
    }
    for _ in 0..nested {
        program.extend(count(lane, -1));
    }
    program
}

/// Waits until nobody is inside, looking at one lane after the other.
fn wait(program: &mut Vec<Step>) {
    let begin = program.len();
    for lane in LANE..LANE + LANES {
        program.extend([Load(lane), Unless(begin)]);
    }
}

fn teardown(barrier: Barrier, threads: usize) -> Vec<Step> {
    let mut program = match barrier {
        Barrier::OperationsOnly => vec![Load(CLOSED), StoreSum(CLOSED, 1)],
        // Only who closed it goes on: others find it closed.
        _ => vec![Swap(CLOSED, 1), Unless(usize::MAX)],
    };
    program.extend(heavy(barrier, threads));
    wait(&mut program);
    program.push(Alone);
    program
}

#[test]
fn nobody_is_inside_while_teardown_frees() {
    for barrier in [Barrier::Kernel, Barrier::Both] {
        let all = [
            vec![operation(LANE, barrier, 1), operation(LANE + 1, barrier, 1)],
            vec![operation(LANE, barrier, 1), operation(SHARED, barrier, 1)],
            vec![operation(LANE, barrier, 1), operation(LANE + 1, barrier, 2)],
            vec![operation(LANE, barrier, 1), teardown(barrier, 3)],
        ];
        for mut programs in all {
            programs.push(teardown(barrier, programs.len() + 1));
            let states = explore(Processor::new(&programs)).unwrap();
            assert!(states > 300, "{states}");
        }
    }
}

/// Without the barrier the counter is still on its way when teardown looks.
#[test]
fn a_missing_barrier_is_found() {
    for barrier in [Barrier::TeardownOnly, Barrier::OperationsOnly] {
        let programs = [operation(LANE, barrier, 1), teardown(barrier, 2)];
        assert_eq!(explore(Processor::new(&programs)), Err(TOGETHER));
    }
    // The lane that threads share is counted in one go, which is a barrier too.
    let barrier = Barrier::TeardownOnly;
    let programs = [operation(SHARED, barrier, 1), teardown(barrier, 2)];
    explore(Processor::new(&programs)).unwrap();
}

#[test]
fn a_look_before_the_counting_is_found() {
    let mut wrong = Vec::new();
    let mut inside = count(LANE, 1);
    inside.extend([Driver(true), Driver(false)]);
    inside.extend(count(LANE, -1));
    unless(&mut wrong, &[CLOSED], &inside);
    let programs = [wrong, teardown(Barrier::Kernel, 2)];
    assert_eq!(explore(Processor::new(&programs)), Err(TOGETHER));
}

#[test]
fn an_operation_that_stays_inside_is_found() {
    let mut wrong = operation(LANE, Barrier::Kernel, 1);
    wrong.truncate(wrong.len() - 2);
    let programs = [wrong, teardown(Barrier::Kernel, 2)];
    let found = explore(Processor::new(&programs)).unwrap_err();
    assert_eq!(found, "somebody waits for ever");
}

/// Teardown while the process exits: whoever of the two comes first, the driver is not called once
/// the exit has looked (without its patience, which is for those who never come out).
fn exit_and_teardown(counts_in: bool) -> [Vec<Step>; 3] {
    let barrier = Barrier::Kernel;
    let mut tearing = teardown(barrier, 3);
    // It is not alone: the exit is there.
    tearing.pop();
    if counts_in {
        tearing.extend(count(LANE + 1, 1));
    }
    let calls = [Driver(true), Driver(false)];
    unless(&mut tearing, &[EXITING], &calls);
    if counts_in {
        tearing.extend(count(LANE + 1, -1));
    }
    let mut exit = vec![Swap(EXITING, 1)];
    exit.extend(heavy(barrier, 3));
    wait(&mut exit);
    exit.push(Alone);
    [operation(LANE, barrier, 1), tearing, exit]
}

#[test]
fn no_driver_is_called_once_the_process_ends() {
    let states = explore(Processor::new(&exit_and_teardown(true))).unwrap();
    assert!(states > 1_000, "{states}");
    let overtaken = explore(Processor::new(&exit_and_teardown(false)));
    assert_eq!(overtaken, Err(TOGETHER));
}
