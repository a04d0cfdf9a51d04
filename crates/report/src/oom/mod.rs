//! Out of memory, explained: what was asked for, where the memory is, and why that is so.
//!
//! ```text
//!     shortage: asks the driver, the registry, NVML
//!         │ plain numbers
//!         ▼
//!     OutOfMemory ──► verdict: causes, the largest first
//!         │
//!         ├──► text: a line for the error, a page for a person
//!         └──► JSON
//! ```
//!
//! What this folder must not know: the driver and its types, guards, and where the numbers come
//! from. It never asks anybody anything: what is not in the numbers is unknown, and said to be.

#![forbid(unsafe_code)]

mod advice;
mod details;
mod facts;
mod json;
mod others;
mod shares;
#[cfg(test)]
mod tests;
mod text;
mod verdict;

pub use cuguard_registry::{PageUse, SiteUsage};
pub use facts::{
    FailedRequest, KindUsage, Limit, OutOfMemory, RecoveryResult, RecoveryStep, Settings,
};
pub use others::{OtherContext, PoolUse, ProcessUse, Processes};
pub use verdict::Cause;
