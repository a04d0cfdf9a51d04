//! Executes a warp.
//!
//! Lanes that diverge form groups. The group with the deepest call and the lowest instruction goes first, so that groups
//! meet where their paths join again. A group that keeps the others waiting for long gives way to them in turn: a lane may
//! wait for what another lane of its warp does, as since Volta.

use super::barriers::{Barriers, ClusterBarrier};
use super::code::Code;
use super::group::{Group, Wait, join};
use crate::instructions::Action;
use crate::machine::{
    Base, BlockId, Cluster, Fault, FaultKind, Grid, LANES, Lanes, Local, Regions, Registers, Stop,
    Warp,
};

/// How long a group may keep others waiting, in backward branches. One that may be part of waiting costs more.
const PATIENCE: u32 = 4096;
const COST_OF_WAITING: u32 = 64;
/// What a backward branch that may be part of waiting costs of the fuel of a warp.
const FUEL_OF_WAITING: u64 = 1 << 10;

/// The state of a warp.
#[derive(Debug)]
pub(super) struct WarpState {
    pub(super) number: u32,
    pub(super) groups: Vec<Group>,
    pub(super) storage: Storage,
    /// The number of registers of the kernel itself, in each bank.
    pub(super) kernel_registers: [u32; 3],
    /// Lanes that have not ended.
    pub(super) alive: u32,
    /// Instructions executed: of the warp, and of its lanes.
    pub(super) steps: u64,
    pub(super) lane_steps: u64,
    patience: u32,
    /// Whether the group chosen last goes on, although another would come first.
    pinned: bool,
    /// Whether an instruction that may be part of waiting has executed since the last backward branch.
    waits: bool,
    /// Counts choices.
    time: u64,
    /// The generation of the cluster's barrier at which each lane arrived last.
    pub(super) cluster_generation: Lanes<u64>,
}

/// What the lanes of a warp own.
#[derive(Debug)]
pub(super) struct Storage {
    pub(super) registers: Registers,
    pub(super) local: Local,
    carry: u32,
    threads: Box<[Lanes<u32>; 3]>,
    /// Of the warp.
    number: u32,
}

impl Storage {
    /// Bytes of the host that it needs.
    pub(super) fn bytes(&self) -> usize {
        self.registers.bytes() + self.local.bytes()
    }

    /// The warp as instructions see it.
    pub(super) fn view<'a, 'g>(&'a mut self, with: &'a mut Surroundings<'_, 'g>) -> Warp<'a, 'g> {
        Warp {
            mask: 0,
            registers: &mut self.registers,
            local: &mut self.local,
            cluster: with.cluster,
            regions: with.regions,
            grid: with.grid,
            block: with.block,
            number: self.number,
            threads: &self.threads,
            carry: &mut self.carry,
            clock: with.clock,
            is_waiting: false,
        }
    }
}

/// Why a warp stopped executing for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pause {
    /// All lanes have ended.
    Ended,
    /// All groups wait for a barrier.
    Blocked,
    /// It has used up its fuel; `is_waiting` if it has done so in a loop that may wait for others.
    Fuel { is_waiting: bool },
}

/// What a warp executes with.
pub(super) struct Surroundings<'a, 'g> {
    pub(super) code: &'g Code,
    pub(super) grid: &'g Grid<'g>,
    pub(super) block: BlockId,
    pub(super) cluster: &'a mut Cluster,
    pub(super) cluster_barrier: &'a mut ClusterBarrier,
    pub(super) regions: &'a mut Regions<'g>,
    pub(super) barriers: &'a mut Barriers,
    pub(super) clock: u64,
}

/// A fault, and the instruction that had it.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) stop: Stop,
    pub(super) pc: u32,
    pub(super) warp: u32,
}

impl WarpState {
    /// A warp at the start of a kernel. `threads` has the coordinates of each lane, `alive` the lanes that exist.
    pub(super) fn new(
        code: &Code,
        kernel: usize,
        number: u32,
        threads: [Lanes<u32>; 3],
        alive: u32,
    ) -> Self {
        let entry = &code.functions[kernel];
        let base = Base::default();
        let mut registers = Registers::default();
        registers.reserve(base, entry.registers);
        let mut local = Local::default();
        local.reserve(entry.frame.into());
        Self {
            number,
            groups: vec![Group {
                pc: entry.start.unwrap_or(0),
                mask: alive,
                function: kernel as u32,
                base,
                frame: None,
                wait: None,
                chosen: 0,
            }],
            storage: Storage {
                registers,
                local,
                carry: 0,
                threads: Box::new(threads),
                number,
            },
            kernel_registers: entry.registers,
            alive,
            steps: 0,
            lane_steps: 0,
            patience: PATIENCE,
            pinned: false,
            waits: false,
            time: 0,
            cluster_generation: [0; LANES],
        }
    }

    /// `%tid` of a lane.
    pub(super) fn thread(&self, lane: usize) -> [u32; 3] {
        [0, 1, 2].map(|axis| self.storage.threads[axis][lane % LANES])
    }

    /// Executes until nothing can go on, or about `fuel` instructions are executed.
    pub(super) fn run(
        &mut self,
        with: &mut Surroundings<'_, '_>,
        fuel: u64,
    ) -> Result<Pause, Failure> {
        let mut left = fuel;
        let mut is_waiting = false;
        loop {
            let Some(chosen) = self.choose(with)? else {
                if self.groups.is_empty() {
                    return Ok(Pause::Ended);
                }
                return Ok(Pause::Blocked);
            };
            is_waiting |= self.run_group(with, chosen, &mut left)?;
            if left == 0 {
                return Ok(Pause::Fuel { is_waiting });
            }
        }
    }

    /// The group that executes next; `None` if none can.
    fn choose(&mut self, with: &mut Surroundings<'_, '_>) -> Result<Option<usize>, Failure> {
        if self.groups.len() > 1 {
            join(&mut self.groups);
        }
        for at in 0..self.groups.len() {
            self.finish_wait(with, at);
        }
        let ready = |own: &Group| own.wait.is_none();
        let mut chosen = self.first_ready();
        if chosen.is_none() && self.release_lanes() {
            join(&mut self.groups);
            chosen = self.first_ready();
        }
        if chosen.is_none() {
            let on_lanes = |own: &Group| matches!(own.wait, Some(Wait::Lanes { .. }));
            if !self.groups.is_empty() && self.groups.iter().all(on_lanes) {
                return Err(self.deadlock());
            }
            return Ok(None);
        }
        let goes_on = |own: &Group| ready(own) && own.chosen == self.time;
        let last = self
            .groups
            .iter()
            .position(goes_on)
            .filter(|_| self.groups.len() > 1);
        if self.patience == 0 {
            let groups = self.groups.iter().enumerate().filter(|(_, own)| ready(own));
            chosen = groups.min_by_key(|(_, own)| own.chosen).map(|(at, _)| at);
            self.patience = PATIENCE;
            self.pinned = true;
        } else if self.pinned && last.is_some() {
            chosen = last;
        } else {
            self.pinned = false;
        }
        self.time += 1;
        if let Some(at) = chosen {
            self.groups[at].chosen = self.time;
        }
        Ok(chosen)
    }

    /// The deepest group that does not wait, and of these the one at the lowest instruction.
    fn first_ready(&self) -> Option<usize> {
        if let [only] = &self.groups[..] {
            return only.wait.is_none().then_some(0);
        }
        let ready = self
            .groups
            .iter()
            .enumerate()
            .filter(|(_, own)| own.wait.is_none());
        let first = ready.min_by_key(|(_, own)| (u32::MAX - own.depth(), own.pc));
        first.map(|(at, _)| at)
    }

    /// Ends a group's wait if what it waits for has happened.
    fn finish_wait(&mut self, with: &mut Surroundings<'_, '_>, at: usize) {
        let group = &mut self.groups[at];
        match group.wait {
            Some(Wait::Lanes { mask, .. }) if mask & self.alive & !group.mask == 0 => {
                group.wait = None;
            }
            Some(Wait::Block { number, generation }) => {
                if with.barriers.generation(number) == generation {
                    return;
                }
                group.wait = None;
                let pc = group.pc;
                group.pc += 1;
                if let Action::Barrier(barrier) = &with.code.steps[pc as usize].action
                    && let Some(reduction) = barrier.reduction
                {
                    let (mask, base) = (group.mask, group.base);
                    let outcome = with.barriers.outcome(number, generation);
                    self.storage.registers.set_base(base);
                    let mut view = self.storage.view(with);
                    view.mask = mask;
                    outcome.write(&mut view, reduction.result);
                }
            }
            Some(Wait::Cluster { generation })
                if with.cluster_barrier.generation() != generation =>
            {
                group.wait = None;
                group.pc += 1;
            }
            _ => {}
        }
    }

    /// Lets groups go on that wait for each other at different `bar.warp.sync`.
    fn release_lanes(&mut self) -> bool {
        for at in 0..self.groups.len() {
            let Some(Wait::Lanes {
                mask,
                is_barrier: true,
            }) = self.groups[at].wait
            else {
                continue;
            };
            let expected = Some(Wait::Lanes {
                mask,
                is_barrier: true,
            });
            let same = self.groups.iter().filter(|own| own.wait == expected);
            let arrived = same.fold(0, |all, own| all | own.mask);
            if mask & self.alive & !arrived != 0 {
                continue;
            }
            for own in self.groups.iter_mut().filter(|own| own.wait == expected) {
                own.wait = None;
                own.pc += 1;
            }
            return true;
        }
        false
    }

    fn deadlock(&self) -> Failure {
        let group = &self.groups[0];
        let kind =
            FaultKind::Deadlock("lanes of a warp wait for each other at different instructions");
        Failure {
            stop: Fault::first(group.mask, kind),
            pc: group.pc,
            warp: self.number,
        }
    }

    /// Executes a group until another may come first. Returns whether it may be waiting for something.
    fn run_group(
        &mut self,
        with: &mut Surroundings<'_, '_>,
        at: usize,
        left: &mut u64,
    ) -> Result<bool, Failure> {
        let code = with.code;
        let is_alone = self.groups.len() == 1;
        let mut is_waiting = false;
        let group = &self.groups[at];
        let (mut pc, mask) = (group.pc, group.mask);
        // Behind this instruction another group may be joined.
        let meets = self.next_above(at);
        self.storage.registers.set_base(group.base);
        let (clock, waits, counted, result) = {
            let mut view = self.storage.view(with);
            view.is_waiting = self.waits;
            // The clock counts the steps.
            let mut counted = view.clock;
            loop {
                let step = &code.steps[pc as usize];
                view.clock += 1;
                let active = match step.guard {
                    None => mask,
                    Some(guard) => {
                        let bits = view.registers.predicate(guard.slot);
                        mask & if guard.is_negated { !bits } else { bits }
                    }
                };
                match &step.action {
                    Action::Execute(execute) => {
                        if active != 0 {
                            view.mask = active;
                            if let Err(stop) = execute(&mut view) {
                                break (view.clock, view.is_waiting, counted, Err(stop));
                            }
                        }
                        pc += 1;
                        if pc >= meets {
                            break (view.clock, view.is_waiting, counted, Ok(None));
                        }
                    }
                    Action::Branch(target) if active == mask => {
                        let is_backward = *target <= pc;
                        pc = *target;
                        if is_backward {
                            let steps = view.clock - counted;
                            counted = view.clock;
                            *left = left.saturating_sub(steps);
                            self.lane_steps += steps * u64::from(mask.count_ones());
                            self.steps += steps;
                            let waits = std::mem::take(&mut view.is_waiting);
                            if waits {
                                is_waiting = true;
                                *left = left.saturating_sub(FUEL_OF_WAITING);
                            }
                            if !is_alone {
                                let cost = if waits { COST_OF_WAITING } else { 1 };
                                self.patience = self.patience.saturating_sub(cost);
                            }
                            if *left == 0 {
                                break (view.clock, view.is_waiting, counted, Ok(None));
                            }
                        }
                        if !is_alone {
                            break (view.clock, view.is_waiting, counted, Ok(None));
                        }
                    }
                    Action::Branch(_) if active == 0 => pc += 1,
                    action => {
                        break (
                            view.clock,
                            view.is_waiting,
                            counted,
                            Ok(Some((action, active))),
                        );
                    }
                }
            }
        };
        let steps = clock - counted;
        self.steps += steps;
        self.lane_steps += steps * u64::from(mask.count_ones());
        *left = left.saturating_sub(steps);
        self.groups[at].pc = pc;
        with.clock = clock;
        self.waits = waits;
        // What fails in the runtime is named by its call.
        let caller = self.groups[at].frame.as_ref().map(|frame| frame.pc);
        let fail = |stop| Failure {
            stop,
            pc: caller.filter(|_| code.is_runtime(pc)).unwrap_or(pc),
            warp: self.number,
        };
        if let Some((action, active)) = result.map_err(fail)? {
            // A loop need not have a plain branch.
            self.patience = self.patience.saturating_sub(u32::from(!is_alone));
            let number = self.number;
            let result = self.control(with, at, action, active);
            result.map_err(|stop| Failure {
                stop,
                pc,
                warp: number,
            })?;
        }
        Ok(is_waiting)
    }

    /// The lowest instruction above that of a group at which another group is.
    fn next_above(&self, at: usize) -> u32 {
        let pc = self.groups[at].pc;
        let others = self
            .groups
            .iter()
            .map(|own| own.pc)
            .filter(|other| *other > pc);
        others.min().unwrap_or(u32::MAX)
    }
}
