//! From text to syntax tree.

mod cursor;
mod declaration;
mod expression;
mod lexer;
mod operand;
mod parser;
pub(crate) mod syntax;

pub(crate) use lexer::Integer;
pub(crate) use parser::parse;
