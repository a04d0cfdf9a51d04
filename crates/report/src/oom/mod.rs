//! The out-of-memory diagnosis: what was requested, where the memory is, and why the request failed.
//!
//! ```text
//!     cuguard: queries the driver, the registry, NVML
//!         │ plain numbers
//!         ▼
//!     OutOfMemory ──► causes, the largest first, and advice
//!         │
//!         ├──► text: one line for the error, or a page
//!         └──► JSON
//! ```
//!
//! This folder must not know the driver and its types, guards, and where the numbers come from. It queries
//! nothing: what is not in the numbers is unknown, and the report says so.

mod advice;
mod causes;
mod details;
mod facts;
mod json;
mod others;
mod shares;
#[cfg(test)]
mod tests;
mod text;

pub use causes::Cause;
pub use cuguard_registry::{PageUse, SiteUsage};
pub use facts::{
    FailedRequest, KindUsage, Limit, OutOfMemory, RecoveryResult, RecoveryStep, Settings,
};
pub use others::{GRAPH_CHUNK, GraphMemoryUse, OtherContext, PoolUse, ProcessUse, Processes};
pub use text::conclusion;

/// Prints the whole report to standard error in one piece.
///
/// ```
/// cuguard_report::oom::print(&cuguard_report::oom::OutOfMemory::default());
/// ```
pub fn print(why: &OutOfMemory) {
    // Without the lock of standard error, which another thread of any program may hold.
    crate::output::print(&why.to_text(), true);
}
