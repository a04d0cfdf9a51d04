//! Why a grid stops.

use std::fmt;

/// Why a grid stopped.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// An access outside of every allocation, or of the memory of a space.
    OutOfBounds {
        /// The generic address, or that in the space.
        address: u64,
        /// The bytes accessed.
        size: u32,
        /// Whether it was written to.
        is_write: bool,
        /// The space: `global`, `shared`, `local`.
        space: &'static str,
    },
    /// An address that is not a multiple of the access's size.
    Misaligned {
        /// The address.
        address: u64,
        /// The bytes accessed.
        size: u32,
    },
    /// The instruction `trap`.
    Trap,
    /// The instruction `brkpt`.
    Breakpoint,
    /// A failed `assert`, with its message.
    Assertion(String),
    /// A call or branch to what is none.
    InvalidTarget(u64),
    /// Local memory is used up, or calls nest too deep.
    StackOverflow,
    /// All threads of a block wait for each other.
    Deadlock(&'static str),
    /// The limit of instructions is reached.
    StepLimit(u64),
    /// The launch was told to end.
    Cancelled,
    /// The program does what PTX leaves undefined.
    Undefined(&'static str),
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfBounds {
                address,
                size,
                is_write,
                space,
            } => {
                let verb = if *is_write { "write" } else { "read" };
                write!(
                    f,
                    "{verb} of {size} bytes at {space} address {address:#x}, out of bounds"
                )
            }
            Self::Misaligned { address, size } => {
                write!(
                    f,
                    "access of {size} bytes at address {address:#x}, which is not aligned"
                )
            }
            Self::Trap => write!(f, "trap"),
            Self::Breakpoint => write!(f, "breakpoint"),
            Self::Assertion(message) => write!(f, "{message}"),
            Self::InvalidTarget(address) => write!(f, "call of {address:#x}, which is no function"),
            Self::StackOverflow => write!(f, "stack overflow"),
            Self::Deadlock(what) => write!(f, "deadlock: {what}"),
            Self::StepLimit(steps) => write!(f, "more than {steps} instructions"),
            Self::Cancelled => write!(f, "cancelled"),
            Self::Undefined(what) => write!(f, "undefined: {what}"),
        }
    }
}

/// A fault, and the lane that had it.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) kind: FaultKind,
    pub(crate) lane: usize,
}

/// Boxed, so that the results of instructions fit a register.
pub(crate) type Stop = Box<Fault>;

impl Fault {
    /// A fault of a lane.
    #[cold]
    pub(crate) fn new(lane: usize, kind: FaultKind) -> Stop {
        Box::new(Self { kind, lane })
    }

    /// A fault of the first lane in a mask.
    #[cold]
    pub(crate) fn first(mask: u32, kind: FaultKind) -> Stop {
        Self::new(mask.trailing_zeros() as usize % 32, kind)
    }
}
