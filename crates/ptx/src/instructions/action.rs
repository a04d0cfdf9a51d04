//! What a decoded instruction does.

use crate::machine::{Destination, Predicate, Source, Stop, Warp};
use crate::program::Place;

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
        targets: Vec<u32>,
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
    pub(crate) returns: Vec<Place>,
    pub(crate) params: Vec<Argument>,
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
