//! The instructions: each family decodes its own to closures that execute a warp at a time.

mod action;
mod apply;
mod approximate;
mod arithmetic;
mod asynchronous;
mod atomics;
mod bits;
mod carry;
mod control;
mod conversion;
mod convert;
mod convert_packed;
mod element;
mod family;
mod float;
mod form;
mod format;
mod fragments;
mod half;
mod hints;
mod load_store;
mod logic;
mod matrix;
mod moves;
mod number_types;
mod predicates;
mod rounding;
mod runtime;
mod small_integers;
mod warp_wide;

pub(crate) use action::{Action, Argument, Barrier, Call, Execute, ReductionResult, Target};
pub(crate) use family::decode;
pub(crate) use runtime::function as runtime_function;
