//! The syntax tree of a text: names are not resolved yet.

use super::lexer::Integer;
use crate::types::{Space, Type};

/// A module.
#[derive(Debug, Default)]
pub(crate) struct Module<'a> {
    /// `major * 10 + minor`.
    pub(crate) version: u32,
    /// The words of `.target`.
    pub(crate) targets: Vec<&'a str>,
    pub(crate) items: Vec<Item<'a>>,
    /// The files of `.file`.
    pub(crate) files: Vec<(u32, &'a str)>,
}

/// What stands at the top level.
#[derive(Debug)]
pub(crate) enum Item<'a> {
    Variable(Linkage, Declaration<'a>),
    Function(Function<'a>),
    /// `.alias NAME, TARGET`
    Alias(u32, &'a str, &'a str),
}

/// How a name is seen by other modules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Linkage {
    #[default]
    Internal,
    Visible,
    Extern,
    Weak,
    Common,
}

/// A variable, a parameter, or registers.
#[derive(Clone, Debug)]
pub(crate) struct Declaration<'a> {
    pub(crate) line: u32,
    pub(crate) space: Space,
    pub(crate) element: Type,
    /// Elements of `.v2`, `.v4`, `.v8`; else 1.
    pub(crate) vector: u32,
    /// `.align`
    pub(crate) align: Option<u32>,
    pub(crate) name: &'a str,
    /// The registers of `%r<10>`.
    pub(crate) registers: Option<u32>,
    /// `[4][]`: `None` for a dimension that is left open.
    pub(crate) dimensions: Vec<Option<u64>>,
    pub(crate) initial: Option<Initializer<'a>>,
    pub(crate) is_managed: bool,
}

/// The initial value of a variable.
#[derive(Clone, Debug)]
pub(crate) enum Initializer<'a> {
    List(Vec<Initializer<'a>>),
    Value(Operand<'a>),
    /// `generic(name)`, `generic(name)+4`
    Generic(&'a str, i64),
    /// `0xFF(name)`: one byte of an address.
    Byte(u64, &'a str, i64),
    /// A text in quotes.
    Text,
}

/// A kernel or a function.
#[derive(Debug)]
pub(crate) struct Function<'a> {
    pub(crate) line: u32,
    pub(crate) is_entry: bool,
    pub(crate) name: &'a str,
    pub(crate) signature: Signature<'a>,
    /// Directives such as `.maxntid`, with their numbers.
    pub(crate) tuning: Vec<(&'a str, Vec<u32>)>,
    /// `None` for a declaration.
    pub(crate) body: Option<Vec<Statement<'a>>>,
}

/// What a function takes and returns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signature<'a> {
    pub(crate) returns: Vec<Declaration<'a>>,
    pub(crate) params: Vec<Declaration<'a>>,
}

/// A statement of a body.
#[derive(Debug)]
pub(crate) enum Statement<'a> {
    Declaration(Declaration<'a>),
    Label(u32, &'a str),
    Block(Vec<Statement<'a>>),
    Instruction(Instruction<'a>),
    /// `.loc`: the file's number, the line.
    Location(u32, u32),
    /// `name: .branchtargets a, b;` and `.calltargets`
    Targets(u32, &'a str, Vec<&'a str>),
    /// `name: .callprototype …;`
    Prototype(u32, &'a str),
}

/// An instruction.
#[derive(Debug)]
pub(crate) struct Instruction<'a> {
    pub(crate) line: u32,
    /// The predicate of `@p` and `@!p`, and whether it is negated.
    pub(crate) guard: Option<(&'a str, bool)>,
    /// `ld.global.u32`
    pub(crate) opcode: &'a str,
    pub(crate) operands: Vec<Operand<'a>>,
}

/// An operand.
#[derive(Clone, Debug)]
pub(crate) enum Operand<'a> {
    Name(&'a str),
    Integer(Integer),
    Single(u32),
    Double(u64),
    /// `name+4`
    Offset(&'a str, i64),
    /// `{a, b}`
    Vector(Vec<Operand<'a>>),
    /// `(a, b)`
    List(Vec<Operand<'a>>),
    /// `[a+4]`, `[tensor, {x, y}]`
    Address(Vec<Operand<'a>>),
    /// `p|q`
    Pair(Box<Operand<'a>>, Box<Operand<'a>>),
    /// `!p`
    Not(&'a str),
    /// `_`
    Sink,
}
