//! The CUDA driver's binary interface as plain data, for the crates of `cuguard`.
//!
//! Nothing here calls, loads or links anything. It contains
//!
//! - [`FUNCTIONS`], [`NAMES`] and [`with_names!`]: every function that the driver's header declares, in all its
//!   versions;
//! - [`with_functions!`] and [`signature!`]: their signatures;
//! - [`CUresult`]: the result codes with the driver's names and descriptions;
//! - the C types of those signatures, and the constants, one module for each enumeration.
//!
//! Functions, types and constants are generated from plain lists in `crates/sys/list`, which
//! `scripts/driver-interface.py` reads from NVIDIA's header.
//!
//! The important difference to `cust_raw`: a result code is a number here, not a Rust enumeration. A code of a
//! newer driver is then a code without a name, not undefined behaviour.

#![allow(
    non_camel_case_types,
    reason = "types keep the driver's names, so that its documentation applies"
)]
#![forbid(unsafe_code)]

mod constants;
mod find;
mod function;
mod generated;
mod handles;
mod result;

pub use constants::*;
pub use function::{DefaultStream, FunctionInfo};
pub use generated::constants::*;
pub use generated::functions::FUNCTIONS;
pub use generated::types::*;
pub use result::CUresult;

macro_rules! names {
    ($($name:ident)*) => {
        /// The names of all exported functions, in the order of [`FUNCTIONS`].
        pub const NAMES: [&str; FUNCTIONS.len()] = [$(stringify!($name)),*];
    };
}
with_names!(names);

#[doc(no_inline)]
pub use std::ffi::{c_char, c_void};
