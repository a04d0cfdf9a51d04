//! The raw functions of the driver: declarations, with types from [`cuguard_sys`], of the symbols that
//! this crate defines. [`result`](crate::result) has the same functions with results.
//!
//! `cust_raw` declares the same symbols, so calls from here and calls from `cust` go through the same
//! table to the same driver. The types differ: a function here returns a [`CUresult`], which may be any
//! number; `cust_raw` has an enumeration, where a code that it does not list is undefined behaviour.
//!
//! # Safety
//!
//! Every function is `unsafe`. The contract is the one in NVIDIA's documentation of the driver API, under
//! the function's name without `_v2`, `_ptsz` and the like: above all, pointers are valid for what the function reads
//! and writes, for as long as it does so (an asynchronous copy continues after the call returns), and
//! handles are alive.
//!
//! Before `cuInit` was called, every function but `cuInit`, `cuDriverGetVersion`, `cuGetProcAddress(_v2)`,
//! `cuGetErrorName` and `cuGetErrorString` returns `CUDA_ERROR_NOT_INITIALIZED`. A function that the loaded
//! driver lacks returns `CUDA_ERROR_NOT_FOUND`.
//!
//! # Example
//!
//! Needs a GPU, or the feature `sim` and `CUGUARD_DRIVER=sim`.
//!
#![cfg_attr(feature = "sim", doc = "```")]
#![cfg_attr(not(feature = "sim"), doc = "```no_run")]
//! use cuguard_driver::{Choice, api, select};
//! # if cfg!(feature = "sim") {
//! # select(Choice::Sim)?;
//! # }
//!
//! let mut devices = 0;
//! // SAFETY: `cuInit` comes first, and the number can be written to.
//! unsafe {
//!     api::cuInit(0).ok()?;
//!     api::cuDeviceGetCount(&mut devices).ok()?;
//! }
//! assert!(devices > 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![allow(
    missing_docs,
    reason = "the driver's own functions, documented by the driver"
)]

use cuguard_sys::*;

macro_rules! declare {
    ($(fn $name:ident($($parameter:ident: $type:ty),*);)*) => {
        unsafe extern "C" {
            $(pub fn $name($($parameter: $type),*) -> CUresult;)*
        }
    };
}

cuguard_sys::with_functions!(declare);
