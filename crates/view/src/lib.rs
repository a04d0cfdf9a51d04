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

mod amount;
mod by;
mod error;
mod from_recording;
mod group;
mod input;
mod moment;
mod resolver;
mod run;
mod site;
mod sweep;
mod symbols;
mod timeline;
mod words;

pub use amount::Amount;
pub use by::By;
pub use error::ViewError;
pub use group::{Group, group};
pub use input::{NoReport, read_reports};
pub use moment::{At, Moment, Peak, moment, peak};
pub use resolver::{Offsets, Resolver};
pub use run::{Allocation, CallSite, FOREVER, Frame, Kind, Mark, MarkKind, Run};
pub use site::Frames;
pub use symbols::{SymbolOptions, Symbols, call_site, foreign_frame};
pub use timeline::{Memory, Series, Timeline, timeline};
