//! The typed program: names are resolved to registers, variables, functions and labels.

mod body;
mod data;
mod model;
mod resolve;
mod scope;
mod special;

pub(crate) use model::{
    Bank, Function, Guard, Instruction, Operand, Parameter, Place, Program, Register, Symbol,
};
pub(crate) use resolve::resolve;
pub(crate) use special::Special;
