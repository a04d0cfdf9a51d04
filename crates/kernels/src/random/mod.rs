//! Random programs in PTX: straight-line code and branches, loops, calls, memory, and what warps and blocks do together.
//!
//! A program is a kernel that begins with the registers and memory of a record in global memory, one for each thread, and
//! writes them back: two drivers that execute it must leave the same bytes. Many kernels make a module, as loading is what
//! takes a real driver the time.
//!
//! # Layers
//!
//! ```text
//! replay       a difference again
//! run          programs on devices, differences
//! emit         from a program to PTX
//! program      what proptest makes
//! templates    the instructions        inputs    what memory begins with
//! ```

mod emit;
mod inputs;
mod program;
mod replay;
mod run;
mod templates;

pub use program::{Program, programs};
pub use replay::replay;
pub use run::{Batch, Difference, Failure, text};
