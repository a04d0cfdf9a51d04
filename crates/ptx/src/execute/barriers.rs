//! Barriers of a block and of a cluster.

use std::collections::{HashMap, VecDeque};

use crate::instructions::ReductionResult;
use crate::machine::{FaultKind, LANES, Warp};

/// The barriers of a block.
#[derive(Debug)]
pub(super) struct Barriers([Barrier; 16]);

#[derive(Clone, Debug, Default)]
struct Barrier {
    /// The lanes of each warp that have arrived.
    arrived: Vec<u32>,
    /// The number of threads that it is for; `None`: all that have not ended.
    threads: Option<u32>,
    /// Whether threads have arrived.
    is_used: bool,
    generation: u64,
    /// Lanes whose predicate was true.
    trues: u32,
    /// Of the last generations, the newest last. A warp has its turn, and takes what it waited for, before as many
    /// generations pass as there are warps.
    outcomes: VecDeque<Outcome>,
}

/// What the threads of a barrier that was passed brought.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Outcome {
    trues: u32,
    threads: u32,
}

impl Outcome {
    /// Writes the result of `bar.red`.
    pub(super) fn write(self, warp: &mut Warp<'_, '_>, to: ReductionResult) {
        let all = |truth: bool| u32::from(truth).wrapping_neg();
        match to {
            ReductionResult::Count(d) => warp.write(d, [self.trues; LANES]),
            ReductionResult::All(p) => warp.set_predicate(p, all(self.trues == self.threads)),
            ReductionResult::Any(p) => warp.set_predicate(p, all(self.trues > 0)),
        }
    }
}

impl Barriers {
    pub(super) fn new(warps: usize) -> Self {
        let barrier = Barrier {
            arrived: vec![0; warps],
            ..Barrier::default()
        };
        Self(std::array::from_fn(|_| barrier.clone()))
    }

    /// Changes when the barrier is passed.
    pub(super) fn generation(&self, number: usize) -> u64 {
        self.0[number % 16].generation
    }

    /// What the threads brought of which a generation waited.
    pub(super) fn outcome(&self, number: usize, generation: u64) -> Outcome {
        let own = &self.0[number % 16];
        let later = (own.generation - generation).saturating_sub(1) as usize;
        let found = own.outcomes.iter().rev().nth(later);
        found.copied().unwrap_or_default()
    }

    /// Lanes of a warp arrive. Returns the generation that they wait for to end.
    pub(super) fn arrive(
        &mut self,
        number: usize,
        warp: usize,
        mask: u32,
        threads: Option<u32>,
        trues: u32,
    ) -> Result<u64, FaultKind> {
        let Some(own) = self.0.get_mut(number) else {
            return Err(FaultKind::Undefined("there are 16 barriers"));
        };
        if threads.is_some_and(|threads| threads == 0 || !threads.is_multiple_of(LANES as u32)) {
            return Err(FaultKind::Undefined(
                "the threads of a barrier are no whole warps",
            ));
        }
        // To name all threads of the block is the same as to name none.
        let all = (own.arrived.len() * LANES) as u32;
        if own.is_used && own.threads.unwrap_or(all) != threads.unwrap_or(all) {
            return Err(FaultKind::Undefined(
                "threads of a barrier disagree about their number",
            ));
        }
        own.threads = match own.is_used {
            true => own.threads.and(threads),
            false => threads,
        };
        own.is_used = true;
        own.arrived[warp] |= mask;
        own.trues += trues.count_ones();
        Ok(own.generation)
    }

    /// Passes the barriers at which all threads have arrived. `alive` has the lanes of each warp that have not ended.
    /// Returns whether there was one.
    pub(super) fn pass(&mut self, alive: &[u32]) -> bool {
        let mut any = false;
        for own in self.0.iter_mut().filter(|own| own.is_used) {
            let count = |of: &mut dyn Iterator<Item = u32>| of.map(u32::count_ones).sum::<u32>();
            let arrived = count(&mut own.arrived.iter().copied());
            let is_complete = match own.threads {
                None => own
                    .arrived
                    .iter()
                    .zip(alive)
                    .all(|(here, alive)| alive & !here == 0),
                // A warp counts as a whole once all lanes that it has are here.
                Some(threads) => {
                    let whole = own.arrived.iter().zip(alive).map(|(here, alive)| {
                        if *here != 0 && alive & !here == 0 {
                            32
                        } else {
                            here.count_ones()
                        }
                    });
                    whole.sum::<u32>() >= threads
                }
            };
            if is_complete {
                own.outcomes.push_back(Outcome {
                    trues: own.trues,
                    threads: arrived,
                });
                if own.outcomes.len() > alive.len() + 1 {
                    own.outcomes.pop_front();
                }
                own.generation += 1;
                own.arrived.fill(0);
                (own.trues, own.is_used) = (0, false);
                any = true;
            }
        }
        any
    }
}

/// The barrier of a cluster.
#[derive(Debug, Default)]
pub(super) struct ClusterBarrier {
    /// The lanes that have arrived, of each warp of each block.
    arrived: HashMap<(u32, u32), u32>,
    generation: u64,
}

impl ClusterBarrier {
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Lanes of a warp arrive; `rank` is that of their block.
    pub(super) fn arrive(&mut self, rank: u32, warp: u32, mask: u32) {
        *self.arrived.entry((rank, warp)).or_default() |= mask;
    }

    /// Passes the barrier if all threads that have not ended have arrived. `alive` has these: rank, warp, lanes.
    pub(super) fn pass(&mut self, mut alive: impl Iterator<Item = (u32, u32, u32)>) -> bool {
        let is_missing = |(rank, warp, lanes): (u32, u32, u32)| {
            let here = self.arrived.get(&(rank, warp)).copied().unwrap_or(0);
            lanes & !here != 0
        };
        let is_complete = !self.arrived.is_empty() && !alive.any(is_missing);
        if is_complete {
            self.arrived.clear();
            self.generation += 1;
        }
        is_complete
    }
}
