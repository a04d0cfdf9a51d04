//! What steps that change control do to groups of lanes.

use super::group::{Group, Wait};
use super::warp::{Surroundings, WarpState};
use crate::instructions::{Action, Barrier, Execute};
use crate::machine::{Fault, FaultKind, LANES, Lanes, Source, Stop};

impl WarpState {
    /// A step that changes control: for the lanes in `active`; the others of the group go on behind it.
    pub(super) fn control(
        &mut self,
        with: &mut Surroundings<'_, '_>,
        at: usize,
        action: &Action,
        active: u32,
    ) -> Result<(), Stop> {
        let group = &mut self.groups[at];
        if active == 0 {
            group.pc += 1;
            return Ok(());
        }
        if active != group.mask {
            let mut rest = group.clone();
            rest.mask &= !active;
            rest.pc += 1;
            group.mask = active;
            self.groups.push(rest);
        }
        match action {
            Action::Execute(_) => Ok(()),
            Action::Branch(target) => {
                self.groups[at].pc = *target;
                Ok(())
            }
            Action::BranchIndexed {
                index,
                targets,
                start,
            } => {
                let indices = self.read(with, at, *index);
                let choose = |lane: usize| {
                    let index = indices[lane] as u32 as usize;
                    let last = targets.len().saturating_sub(1);
                    targets.get(index.min(last)).map(|own| own + start)
                };
                self.split(at, |group, lane| match choose(lane) {
                    Some(target) => group.pc = target,
                    None => group.pc += 1,
                });
                Ok(())
            }
            Action::Call(call) => self.call(with, at, call),
            Action::Return => self.ret(with, at),
            Action::Exit => {
                let group = self.groups.swap_remove(at);
                self.alive &= !group.mask;
                Ok(())
            }
            Action::Converge { mask, execute } => self.converge(with, at, *mask, execute.as_ref()),
            Action::Barrier(barrier) => self.arrive(with, at, barrier),
            Action::ClusterArrive => {
                let mask = self.groups[at].mask;
                with.cluster_barrier
                    .arrive(with.block.rank, self.number, mask);
                let generation = with.cluster_barrier.generation();
                for lane in (0..LANES).filter(|lane| mask >> lane & 1 != 0) {
                    self.cluster_generation[lane] = generation;
                }
                self.groups[at].pc += 1;
                Ok(())
            }
            Action::ClusterWait => {
                let first = self.groups[at].mask.trailing_zeros() as usize % LANES;
                let generation = self.cluster_generation[first];
                self.groups[at].wait = Some(Wait::Cluster { generation });
                Ok(())
            }
        }
    }

    /// The values of an operand for a group.
    pub(super) fn read(
        &mut self,
        with: &mut Surroundings<'_, '_>,
        at: usize,
        source: Source,
    ) -> Lanes<u64> {
        self.storage.registers.set_base(self.groups[at].base);
        self.storage.view(with).read(source)
    }

    /// Splits a group into one for each different outcome of `change`, which may change a group for a lane.
    pub(super) fn split(&mut self, at: usize, change: impl Fn(&mut Group, usize)) {
        let group = self.groups.swap_remove(at);
        let first = self.groups.len();
        for lane in (0..LANES).filter(|lane| group.mask >> lane & 1 != 0) {
            let mut own = group.clone();
            change(&mut own, lane);
            own.mask = 1 << lane;
            let same = self.groups[first..].iter_mut();
            let mut same =
                same.filter(|other| (other.pc, other.function) == (own.pc, own.function));
            match same.next() {
                Some(other) => other.mask |= own.mask,
                None => self.groups.push(own),
            }
        }
    }

    /// Waits for lanes, or executes if all are here. Lanes with different masks part.
    fn converge(
        &mut self,
        with: &mut Surroundings<'_, '_>,
        at: usize,
        mask: Source,
        execute: Option<&Execute>,
    ) -> Result<(), Stop> {
        let mut next = Some(at);
        while let Some(at) = next {
            next = self.converge_equal(with, at, mask, execute)?;
        }
        Ok(())
    }

    /// The same for the lanes with the mask of the first. Returns the group of the others.
    fn converge_equal(
        &mut self,
        with: &mut Surroundings<'_, '_>,
        at: usize,
        mask: Source,
        execute: Option<&Execute>,
    ) -> Result<Option<usize>, Stop> {
        let masks = self.read(with, at, mask);
        let active = self.groups[at].mask;
        let first = active.trailing_zeros() as usize % LANES;
        let expected = masks[first] as u32;
        if expected & 1 << first == 0 {
            let what = "a lane is not in the mask of the lanes it waits for";
            return Err(Fault::new(first, FaultKind::Undefined(what)));
        }
        let same = (0..LANES).filter(|lane| masks[*lane] as u32 == expected);
        let same = same.fold(0, |all, lane| all | 1 << lane) & active;
        let mut others = None;
        if same != active {
            let mut rest = self.groups[at].clone();
            rest.mask &= !same;
            self.groups[at].mask = same;
            others = Some(self.groups.len());
            self.groups.push(rest);
        }
        if expected & self.alive & !same != 0 {
            self.groups[at].wait = Some(Wait::Lanes {
                mask: expected,
                is_barrier: execute.is_none(),
            });
            return Ok(others);
        }
        let mut view = self.storage.view(with);
        view.mask = same;
        if let Some(execute) = execute {
            execute(&mut view)?;
        }
        self.groups[at].pc += 1;
        Ok(others)
    }

    /// Arrives at a barrier of the block.
    fn arrive(
        &mut self,
        with: &mut Surroundings<'_, '_>,
        at: usize,
        barrier: &Barrier,
    ) -> Result<(), Stop> {
        let mask = self.groups[at].mask;
        let first = mask.trailing_zeros() as usize % LANES;
        let numbers = self.read(with, at, barrier.number);
        let counts = barrier.threads.map(|own| self.read(with, at, own));
        let of = |lane: usize| (numbers[lane], counts.map(|own| own[lane] as u32));
        let same = (0..LANES).filter(|lane| of(*lane) == of(first));
        let same = same.fold(0, |all, lane| all | 1 << lane) & mask;
        if same != mask {
            // The others arrive at their barrier when it is their turn.
            let mut rest = self.groups[at].clone();
            rest.mask &= !same;
            self.groups[at].mask = same;
            self.groups.push(rest);
        }
        let mask = same;
        let (number, threads) = of(first);
        let number = number as usize;
        let trues = match barrier.reduction {
            Some(reduction) => self.storage.view(with).predicate(reduction.of) & mask,
            None => 0,
        };
        let arrived = with
            .barriers
            .arrive(number, self.number as usize, mask, threads, trues);
        let generation = arrived.map_err(|kind| Fault::new(first, kind))?;
        if barrier.waits {
            self.groups[at].wait = Some(Wait::Block { number, generation });
        } else {
            self.groups[at].pc += 1;
        }
        Ok(())
    }
}
