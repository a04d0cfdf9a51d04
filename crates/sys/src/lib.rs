//! The CUDA driver's binary interface as plain data, for the crates of `cuguard`.
//!
//! Nothing here calls, loads or links anything. It contains
//!
//! - [`NAMES`] and [`with_names!`]: all 353 functions that `cust_raw` 0.11.3 declares;
//! - [`with_functions!`]: the signatures of those that this project calls or simulates;
//! - [`CUresult`]: the result codes with the driver's names and descriptions;
//! - the C types and constants of those signatures.
//!
//! The important difference to `cust_raw`: a result code is a number here, not a Rust enumeration. A code of a
//! newer driver is then a code without a name, not undefined behaviour.

#![allow(
    non_camel_case_types,
    reason = "types keep the driver's names, so that its documentation applies"
)]
#![forbid(unsafe_code)]

mod constants;
mod functions;
mod names;
mod result;
mod types;

pub use constants::*;
pub use names::NAMES;
pub use result::CUresult;
pub use types::*;

#[doc(no_inline)]
pub use std::ffi::{c_char, c_void};
