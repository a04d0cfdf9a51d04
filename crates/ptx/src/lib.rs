//! Parses PTX and executes it on the CPU.

mod error;
mod execute;
mod instructions;
mod machine;
mod module;
mod number;
mod program;
mod text;
mod types;

pub use error::{LoadError, LoadErrors};
pub use execute::{LaunchError, Order, Statistics};
pub use machine::{FaultKind, Host, Memory, Region};
pub use module::{Kernel, Launch, Module, Variable};
