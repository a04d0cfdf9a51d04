//! The corpus: kernels in CUDA C++, Python and Rust, their PTX, and what they compute.
//!
//! A module is three files of the folder `corpus`: the source, the PTX that a compiler made of it
//! (`scripts/kernel-corpus.sh`), and its launches, a line for each:
//!
//! ```text
//! saxpy 4x256 : f32:2.5 unit.f32*1000 small.f32*1000 u32:1000 = 0123456789abcdef
//! ```
//!
//! That is the kernel, blocks and threads (`4,2,1x16,16` for more dimensions; behind them `shared=BYTES` for dynamic shared
//! memory and `cooperative`), the arguments, and the checksum of all buffers after it (FNV-1a), and for kernels that print,
//! behind a `+` that of the lines in alphabetical order, since the order of threads is open. A buffer is a kind of
//! content, a type and a count; with `@` before it the argument is an array of numba, seven values for one dimension.
//! Inputs are such that results are exact, or rounded as the PTX manual says; what is approximate is compared in the kernel.
//!
//! # Layers
//!
//! ```text
//! run            launches on a device, and what they leave
//! launch         the lines        modules    the files
//! content        what buffers begin with
//! ```

mod content;
mod launch;
mod modules;
mod run;

pub use content::checksum;
pub use launch::{Argument, Launch};
pub use modules::{MODULES, Module};
pub use run::{Outcome, run};
