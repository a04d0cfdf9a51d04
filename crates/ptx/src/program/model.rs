//! What a program consists of.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::special::Special;
use crate::text::Integer;
use crate::text::syntax::Linkage;
use crate::types::{Space, Type};

/// A module whose names are resolved.
#[derive(Debug, Default)]
pub(crate) struct Program {
    pub(crate) functions: Vec<Function>,
    /// In global and constant memory.
    pub(crate) variables: Vec<Variable>,
    /// In shared memory.
    pub(crate) shared: Vec<Shared>,
    /// The files of `.loc`, by number.
    pub(crate) files: BTreeMap<u32, String>,
    /// Functions whose address a variable holds.
    pub(crate) in_variables: BTreeSet<usize>,
}

/// A variable in global or constant memory.
#[derive(Debug)]
pub(crate) struct Variable {
    pub(crate) line: u32,
    pub(crate) name: String,
    pub(crate) space: Space,
    pub(crate) linkage: Linkage,
    pub(crate) size: u64,
    pub(crate) align: u64,
    /// The initial value; what it lacks to `size` is zero.
    pub(crate) initial: Vec<u8>,
    pub(crate) relocations: Vec<Relocation>,
    pub(crate) is_managed: bool,
}

/// An address in the initial value of a variable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Relocation {
    /// Where in the variable.
    pub(crate) at: usize,
    pub(crate) symbol: Symbol,
    pub(crate) addend: i64,
    /// The bytes of the address that are stored: the lowest `len`, shifted right by `shift` bits.
    pub(crate) len: usize,
    pub(crate) shift: u32,
}

/// A variable in shared memory.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) size: u32,
    pub(crate) align: u32,
    /// Whether its size is that of the launch.
    pub(crate) is_dynamic: bool,
}

/// A kernel or a function.
#[derive(Debug)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) is_entry: bool,
    pub(crate) params: Vec<Parameter>,
    pub(crate) returns: Vec<Parameter>,
    pub(crate) tuning: Tuning,
    /// `None` if another module or the host defines it.
    pub(crate) body: Option<Vec<Instruction>>,
    /// The number of registers in each bank, by [`Bank`].
    pub(crate) registers: [u32; 3],
    /// Bytes of local variables and parameters per thread.
    pub(crate) frame: u32,
    pub(crate) frame_align: u32,
    pub(crate) branch_targets: Vec<Arc<[u32]>>,
    /// Shared variables that it names.
    pub(crate) uses_shared: BTreeSet<usize>,
    /// Whether it calls functions through pointers.
    pub(crate) calls_pointers: bool,
    /// Functions that it names.
    pub(crate) uses_functions: BTreeSet<usize>,
}

/// Directives of a function.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tuning {
    /// `.maxntid`
    pub(crate) max_threads: Option<[u32; 3]>,
    /// `.reqntid`
    pub(crate) required_threads: Option<[u32; 3]>,
    /// `.reqnctapercluster`
    pub(crate) required_cluster: Option<[u32; 3]>,
    /// `.explicitcluster`
    pub(crate) explicit_cluster: bool,
}

/// A parameter or a return value.
#[derive(Clone, Debug)]
pub(crate) struct Parameter {
    pub(crate) size: u32,
    pub(crate) place: Place,
}

/// Where a parameter is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    Register(Register),
    /// An offset in the function's frame; for a kernel, in the arguments of the launch.
    Frame(u32),
}

/// The bank of a register: what its lanes are stored as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Bank {
    /// One bit.
    Predicate = 0,
    /// Up to 32 bits.
    Word = 1,
    /// 64 bits; 128 bits are two in a row.
    Long = 2,
}

/// A register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Register {
    pub(crate) bank: Bank,
    /// Its index in the function's part of the bank.
    pub(crate) slot: u32,
    pub(crate) of: Type,
}

/// The predicate of an instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard {
    pub(crate) slot: u32,
    pub(crate) is_negated: bool,
}

/// An instruction.
#[derive(Clone, Debug)]
pub(crate) struct Instruction {
    pub(crate) line: u32,
    /// The file's number and the line in it.
    pub(crate) location: Option<(u32, u32)>,
    pub(crate) guard: Option<Guard>,
    pub(crate) opcode: Box<str>,
    pub(crate) operands: Vec<Operand>,
}

/// What a name stands for whose value is an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Symbol {
    Variable(usize),
    Shared(usize),
    /// A local variable or a parameter of a function, at an offset in its frame, and its bytes.
    Frame(u32, u32),
    /// A parameter of a kernel, at an offset in the arguments.
    Argument(u32),
    Function(usize),
}

/// An operand.
#[derive(Clone, Debug)]
pub(crate) enum Operand {
    Register(Register),
    Special(Special),
    Integer(Integer),
    Single(u32),
    Double(u64),
    Symbol(Symbol, i64),
    /// `%r+4`, in an address.
    Offset(Register, i64),
    Vector(Vec<Operand>),
    List(Vec<Operand>),
    Address(Vec<Operand>),
    Pair(Box<Operand>, Box<Operand>),
    Not(Register),
    Sink,
    /// The index of an instruction in the function.
    Label(u32),
    /// An index in [`Function::branch_targets`].
    Targets(usize),
    /// The types of a function that is called through a pointer.
    Prototype,
}
