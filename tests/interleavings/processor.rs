//! Threads that run programs of simple steps, on a processor that makes a thread's writes visible to the
//! others some time later, in order (a store buffer).

use std::hash::{Hash, Hasher};

/// What a thread does in one step. Jumps count from the step itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Reads a variable into the thread's register.
    Load(usize),
    /// Writes a number. Others see it later.
    Store(usize, i8),
    /// Writes in one go, as a locked instruction does, which also waits for earlier writes.
    /// The register is what was there.
    Swap(usize, i8),
    /// In one go too, the variable that the register is the number of, from this one on.
    SwapAt(usize, i8),
    /// Takes a lock, and waits for it. It is released by a write of 0.
    Lock(usize),
    /// Waits until a variable is not zero.
    WaitFor(usize),
    /// Waits until others see what this thread wrote.
    Fence,
    /// Makes one thread's writes visible, as the kernel does to each in turn in `membarrier`.
    FenceIn(usize),
    /// Goes on elsewhere if the register is another number.
    IfNot(i8, isize),
    Goto(isize),
    /// The register is not zero, or this is what is wrong.
    Must(&'static str),
    /// Not a step of the program: sets what the model itself knows, at once.
    Note(usize, i8),
    /// Not a step of the program: remembers which of some variables are set now.
    Remember(usize, usize),
    /// Of those that are remembered and still set, each must be set from the second variable on.
    Compare(usize, usize, &'static str),
}
use Step::*;

/// It never changes, so it is compared by its address: there are many states.
#[derive(Clone, Copy, Debug)]
struct Program(&'static [Step]);

impl PartialEq for Program {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Program {}

impl Hash for Program {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.as_ptr().hash(state);
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Thread {
    program: Program,
    at: usize,
    register: i8,
    remembered: Vec<usize>,
    /// Writes that others do not see yet, in order.
    late: Vec<(usize, i8)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Processor {
    pub memory: Vec<i8>,
    threads: Vec<Thread>,
    pub wrong: Option<&'static str>,
}

impl Processor {
    pub fn new(variables: usize, programs: &[Vec<Step>]) -> Self {
        let thread = |program: &Vec<Step>| Thread {
            program: Program(program.clone().leak()),
            at: 0,
            register: 0,
            remembered: Vec::new(),
            late: Vec::new(),
        };
        Self {
            memory: vec![0; variables],
            threads: programs.iter().map(thread).collect(),
            wrong: None,
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

    fn swap(&mut self, n: usize, variable: usize, value: i8) {
        self.write_all(n);
        self.threads[n].register = std::mem::replace(&mut self.memory[variable], value);
    }

    /// Takes a step; false where the thread has to wait.
    fn step(&mut self, n: usize, step: Step) -> bool {
        let register = self.threads[n].register;
        let mut jump = 1;
        match step {
            Load(variable) => {
                // A thread sees its own writes at once.
                let mut own = self.threads[n].late.iter().rev();
                let own = own.find(|(which, _)| *which == variable);
                self.threads[n].register = own.map_or(self.memory[variable], |(_, value)| *value);
            }
            Store(variable, number) => self.threads[n].late.push((variable, number)),
            Swap(variable, value) => self.swap(n, variable, value),
            SwapAt(base, value) => self.swap(n, base + register as usize, value),
            Lock(variable) => {
                self.write_all(n);
                if self.memory[variable] != 0 {
                    return false;
                }
                self.memory[variable] = 1;
            }
            WaitFor(variable) if self.memory[variable] == 0 => return false,
            WaitFor(_) => {}
            Fence => self.write_all(n),
            FenceIn(other) => self.write_all(other),
            IfNot(number, target) if register != number => jump = target,
            IfNot(..) => {}
            Goto(target) => jump = target,
            Must(wrong) if register == 0 => self.wrong = Some(wrong),
            Must(_) => {}
            Note(variable, value) => self.memory[variable] = value,
            Remember(base, count) => {
                let set = (0..count).filter(|i| self.memory[base + i] != 0);
                self.threads[n].remembered = set.collect();
            }
            Compare(base, other, wrong) => {
                let mut all = self.threads[n].remembered.iter();
                if all.any(|i| self.memory[base + i] != 0 && self.memory[other + i] == 0) {
                    self.wrong = Some(wrong);
                }
            }
        }
        let at = self.threads[n].at.checked_add_signed(jump);
        self.threads[n].at = at.expect("within the program");
        true
    }

    pub fn next(&self) -> Vec<Self> {
        let mut all = Vec::new();
        for (n, thread) in self.threads.iter().enumerate() {
            if let Some(step) = thread.program.0.get(thread.at) {
                let mut next = self.clone();
                if next.step(n, *step) {
                    all.push(next);
                }
            }
            if !thread.late.is_empty() {
                let mut next = self.clone();
                next.write_one(n);
                all.push(next);
            }
        }
        all
    }

    pub fn is_over(&self) -> bool {
        let mut threads = self.threads.iter();
        threads.all(|thread| thread.at >= thread.program.0.len() && thread.late.is_empty())
    }
}

/// One of two parts, by whether the register is this number.
pub fn branch(number: i8, then: Vec<Step>, otherwise: Vec<Step>) -> Vec<Step> {
    let mut program = vec![IfNot(number, then.len() as isize + 2)];
    program.extend(then);
    program.push(Goto(otherwise.len() as isize + 1));
    program.extend(otherwise);
    program
}

/// Looks at a variable until it is zero.
pub fn wait_while(variable: usize) -> [Step; 2] {
    [Load(variable), IfNot(0, -1)]
}

/// What stands between a write and the read that follows it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Barrier {
    /// src/fence.rs with `membarrier`: nothing for who comes often, all threads for who comes seldom.
    Kernel,
    /// A mistake: `membarrier` alone, while what its caller wrote is on its way.
    KernelAlone,
    /// A mistake: only the one that comes seldom waits for its own writes.
    SeldomOnly,
    /// A mistake: only the one that comes often does.
    OftenOnly,
}

impl Barrier {
    pub fn light(self) -> Vec<Step> {
        match self {
            Self::Kernel | Self::KernelAlone | Self::SeldomOnly => Vec::new(),
            Self::OftenOnly => vec![Fence],
        }
    }

    pub fn heavy(self, threads: usize) -> Vec<Step> {
        match self {
            Self::Kernel => [vec![Fence], Self::KernelAlone.heavy(threads)].concat(),
            Self::KernelAlone => (0..threads).map(FenceIn).collect(),
            Self::SeldomOnly => vec![Fence],
            Self::OftenOnly => Vec::new(),
        }
    }
}
