//! What a decoded instruction does.

use std::sync::Arc;

use crate::machine::{Destination, Predicate, Source, Stop, Warp};
use crate::program::{Bank, Place};

/// Executes an instruction for the active lanes.
pub(crate) type Execute = Box<dyn Fn(&mut Warp<'_, '_>) -> Result<(), Stop> + Send + Sync>;

/// What a decoded instruction does.
pub(crate) enum Action {
    /// Something that leaves control where it is.
    Execute(Execute),
    /// To an instruction of the function.
    Branch(u32),
    /// To one of several instructions.
    BranchIndexed {
        index: Source,
        /// Counted from `start`; several instructions may have the same list.
        targets: Arc<[u32]>,
        start: u32,
    },
    Call(Box<Call>),
    Return,
    Exit,
    /// Waits until the lanes in `mask` that have not ended are here, then executes with all of them. Without something to
    /// execute, they may be at different instructions.
    Converge {
        mask: Source,
        execute: Option<Execute>,
    },
    Barrier(Box<Barrier>),
    /// `barrier.cluster.arrive`, `barrier.cluster.wait`
    ClusterArrive,
    ClusterWait,
}

/// A call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) target: Target,
    /// Each with its bytes.
    pub(crate) returns: Vec<(Place, u32)>,
    pub(crate) params: Vec<(Argument, u32)>,
}

impl Call {
    /// Whether a function with these returns and parameters, each with its bytes, can be called.
    pub(crate) fn fits(&self, returns: &[(Place, u32)], params: &[(Place, u32)]) -> bool {
        let mut all = self.returns.iter().zip(returns);
        let mut arguments = self.params.iter().zip(params);
        self.returns.len() == returns.len()
            && self.params.len() == params.len()
            && all.all(|(own, other)| are_alike(*own, *other))
            && arguments.all(|((own, size), other)| match own {
                Argument::Place(place) => are_alike((*place, *size), *other),
                Argument::Constant(_) => other.1 <= *size,
            })
    }
}

/// Whether a value of one place can be copied to the other.
fn are_alike((caller, own): (Place, u32), (callee, other): (Place, u32)) -> bool {
    match (caller, callee) {
        (Place::Register(a), Place::Register(b)) => a.bank == b.bank && own == other,
        // Frames consist of whole words.
        (Place::Frame(_), Place::Frame(_)) => own.div_ceil(4) == other.div_ceil(4),
        // A register may be wider than what it is in memory.
        (Place::Register(register), Place::Frame(_)) => {
            register.bank != Bank::Predicate && other <= own
        }
        (Place::Frame(_), Place::Register(register)) => {
            register.bank != Bank::Predicate && own.div_ceil(4) == other.div_ceil(4)
        }
    }
}

/// What is called.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Target {
    Function(usize),
    Pointer(Source),
}

/// What a caller passes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Argument {
    Place(Place),
    Constant(u64),
}

/// A barrier of the block.
#[derive(Clone, Debug)]
pub(crate) struct Barrier {
    pub(crate) number: Source,
    /// `None`: all threads of the block.
    pub(crate) threads: Option<Source>,
    /// False for `bar.arrive`.
    pub(crate) waits: bool,
    pub(crate) reduction: Option<Reduction>,
}

/// What `bar.red` computes of a predicate of all threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reduction {
    pub(crate) of: Predicate,
    pub(crate) result: ReductionResult,
}

/// Where the result of `bar.red` goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReductionResult {
    Count(Destination),
    All(Option<u32>),
    Any(Option<u32>),
}
