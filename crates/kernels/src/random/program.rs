//! Random programs as data, which proptest makes and simplifies.

use proptest::collection::vec;
use proptest::prelude::*;

use super::templates::{CONVERT, MASKED, MEMORY, PURE, TOGETHER};

/// A program: a kernel, and functions that it calls.
#[derive(Clone, Debug)]
pub struct Program {
    /// Blocks.
    pub blocks: u32,
    /// Warps of a block.
    pub warps: u32,
    /// Of what the registers begin with.
    pub seed: u64,
    pub(super) body: Vec<Statement>,
    pub(super) functions: Vec<Vec<Statement>>,
}

/// A family of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Pure,
    Convert,
    Memory,
    Together,
    Masked,
}

impl Family {
    pub(super) fn templates(self) -> &'static [&'static str] {
        match self {
            Family::Pure => PURE,
            Family::Convert => CONVERT,
            Family::Memory => MEMORY,
            Family::Together => TOGETHER,
            Family::Masked => MASKED,
        }
    }
}

/// An instruction, or a few that belong together.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    pub(super) family: Family,
    pub(super) template: usize,
    /// Chooses alternatives, registers and kinds of immediates, in turn.
    pub(super) picks: [u8; 16],
    /// For immediates.
    pub(super) number: u64,
    /// Below 64 it depends on a predicate.
    pub(super) guard: u8,
}

/// A part of a program.
#[derive(Clone, Debug)]
pub(super) enum Statement {
    Do(Operation),
    /// Lanes where the predicate holds, or does not, and the others.
    If(u8, Vec<Statement>, Vec<Statement>),
    /// The same, with operations of the lanes that come here.
    Warp(u8, Vec<Statement>),
    /// All threads the same number of times.
    Repeat(u8, Vec<Statement>),
    /// Each lane as often as a register says, unless it leaves.
    While(u8, Vec<Statement>),
    /// One of several, by a register.
    Switch(u8, Vec<Vec<Statement>>),
    /// Calls a function: by name, or through a pointer.
    Call([u8; 4], bool),
}

/// What statements may contain.
#[derive(Clone, Copy)]
struct Context {
    depth: u32,
    /// All threads of the block come here.
    together: bool,
    /// Whether there are memory of the thread and functions.
    kernel: bool,
}

fn operation(family: Family) -> impl Strategy<Value = Statement> {
    let numbers = (
        0..family.templates().len(),
        any::<[u8; 16]>(),
        any::<u64>(),
        any::<u8>(),
    );
    numbers.prop_map(move |(template, picks, number, guard)| {
        Statement::Do(Operation {
            family,
            template,
            picks,
            number,
            guard,
        })
    })
}

fn statement(context: Context) -> BoxedStrategy<Statement> {
    let mut any_of: Vec<(u32, BoxedStrategy<Statement>)> = vec![
        (30, operation(Family::Pure).boxed()),
        (8, operation(Family::Convert).boxed()),
    ];
    if context.kernel {
        any_of.push((10, operation(Family::Memory).boxed()));
        any_of.push((
            2,
            (any::<[u8; 4]>(), any::<bool>())
                .prop_map(|(own, by)| Statement::Call(own, by))
                .boxed(),
        ));
    }
    if context.together {
        any_of.push((6, operation(Family::Together).boxed()));
    }
    if context.depth > 0 {
        let deeper = Context {
            depth: context.depth - 1,
            ..context
        };
        let apart = Context {
            together: false,
            ..deeper
        };
        let few = |context| vec(statement(context), 0..5);
        let condition = any::<u8>();
        any_of.push((
            3,
            (condition, few(apart), few(apart))
                .prop_map(|(p, a, b)| Statement::If(p, a, b))
                .boxed(),
        ));
        any_of.push((
            2,
            (condition, few(deeper))
                .prop_map(|(n, body)| Statement::Repeat(n, body))
                .boxed(),
        ));
        any_of.push((
            2,
            (condition, few(apart))
                .prop_map(|(n, body)| Statement::While(n, body))
                .boxed(),
        ));
        let cases = vec(few(apart), 2..5);
        any_of.push((
            1,
            (condition, cases)
                .prop_map(|(n, cases)| Statement::Switch(n, cases))
                .boxed(),
        ));
        if context.together {
            let inside = prop_oneof![
                1 => operation(Family::Pure).boxed(),
                2 => operation(Family::Masked).boxed(),
            ];
            any_of.push((
                2,
                (condition, vec(inside, 1..5))
                    .prop_map(|(p, body)| Statement::Warp(p, body))
                    .boxed(),
            ));
        }
    }
    proptest::strategy::Union::new_weighted(any_of).boxed()
}

/// All programs: a third of them are straight-line code.
pub fn programs() -> impl Strategy<Value = Program> {
    let context = |depth| Context {
        depth,
        together: true,
        kernel: true,
    };
    let function = Context {
        depth: 1,
        together: false,
        kernel: false,
    };
    let body = prop_oneof![
        1 => vec(statement(context(0)), 1..50),
        2 => vec(statement(context(2)), 1..24),
    ];
    // Few programs have functions: calls are what takes a real driver the time.
    let functions = prop_oneof![
        7 => Just(Vec::new()),
        1 => vec(vec(statement(function), 1..6), 2),
    ];
    (1..3u32, 1..4u32, any::<u64>(), body, functions).prop_map(
        |(blocks, warps, seed, body, functions)| Program {
            blocks,
            warps,
            seed,
            body,
            functions,
        },
    )
}
