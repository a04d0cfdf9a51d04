//! What recordings show: what was alive at a moment, in groups; what grew between two; pictures and pages of it.
//!
//! ```text
//!     Recording ─┐                         ┌──► text, JSON, folded stacks, flame graph, pprof, trace
//!     report ────┴──► Run ──► Moment ──► groups
//!     (JSON)           └──► Timeline ──────┴──► page
//! ```
//!
//! This crate must not know how a recording is stored, how the command line looks, or the driver.

#![forbid(unsafe_code)]

mod alive;
mod by;
mod call_sites;
mod diff;
mod error;
mod from_recording;
mod group;
mod growth;
mod input;
mod json_parts;
mod keys;
mod load;
mod look;
mod moment;
mod naming;
mod output;
pub mod page;
mod ranks;
mod resolver;
mod run;
mod site;
mod stack_text;
mod summary;
mod sweep;
mod symbols;
mod timeline;
mod words;

pub use by::By;
pub use cuguard_registry::Amount;
pub use diff::{Change, Diff, Match, diff};
pub use error::ViewError;
pub use group::{Group, group};
pub use growth::{GrowingSite, growing_sites};
pub use input::{NoReport, read_reports};
pub use load::open;
pub use look::{Frames, Look};
pub use moment::{At, Moment, Peak, moment, peak};
pub use output::{findings_line, flamegraph, folded, json, pprof, text, text_with_findings, trace};
pub use ranks::{Difference, Rank, Ranks};
pub use resolver::{Offsets, Resolver};
pub use run::{
    Allocation, CallSite, FOREVER, Fate, Frame, Mark, MarkKind, Origin, RecordedKind, Run,
};
pub use summary::Overview;
pub use symbols::{SymbolOptions, Symbols, call_site, foreign_frame};
pub use timeline::{Memory, Series, Timeline, timeline};
