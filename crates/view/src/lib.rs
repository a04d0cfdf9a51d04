//! What recordings show: what was alive at a moment, in groups; what grew between two; pictures and pages of it.
//!
//! ```text
//!     Recording ─┐                         ┌──► text, JSON, folded stacks, flame graph, pprof
//!     report ────┴──► Run ──► Moment ──► groups
//!     (JSON)           └──► Timeline ──────┴──► page
//! ```
//!
//! This crate must not know how a recording is stored, how the command line looks, or the driver.

#![forbid(unsafe_code)]

pub mod page;
mod run;

pub use run::{Allocation, CallSite, FOREVER, Frame, Kind, Mark, MarkKind, Run};
