//! Leak reports and out-of-memory diagnoses of cuguard: what a report contains, and where it is written.
//!
//! ```text
//!     Snapshot ──► PreparedSnapshot ──► text ───┐
//!                     │         json ───┼──► output: stderr, a file
//!                     │         github ─┘
//!          symbols, merged groups, suppressions
//! ```
//!
//! [`emit`] is the entry point: it is called at the end of a context, with the settings of `LEAK_REPORT`
//! and the program. [`oom`] explains why an allocation failed. [`audit`] is the report of a program without guards, under
//! `cuguard run`.
//!
//! This crate must not know the driver and its types, guards, or how the registry stores records. It reads
//! snapshots. Nothing here panics or returns an error: a report is made while contexts are dropped, maybe
//! while a panic unwinds.

#![forbid(unsafe_code)]

mod annotations;
pub mod audit;
mod checkpoint;
mod cpp_names;
mod demangle;
mod diff_text;
mod dump_signal;
mod environment;
mod fail_on;
mod figures;
mod foreign;
mod format;
mod frames;
mod github;
mod json;
mod json_value;
mod metrics;
mod module_symbols;
pub mod oom;
mod open_file;
mod output;
mod paint;
mod parse;
mod paths;
mod pattern;
pub mod phrase;
mod prepare;
#[cfg(test)]
mod prepare_tests;
mod problem;
mod recording;
mod report_trait;
mod resolve;
mod rows;
mod run_records;
mod settings;
mod site_frame;
mod size;
mod stats;
mod summary;
mod suppress;
pub mod symbol_file;
mod symbols;
#[cfg(test)]
mod tests_support;
mod text;
#[cfg(test)]
mod text_tests;
mod words;

pub use audit::{FrameClass, FrameNames};
pub use checkpoint::Checkpoint;
pub use cuguard_recording::Policy as RecordPolicy;
pub use demangle::demangle;
pub use diff_text::display_diff;
pub use dump_signal::{DumpSignal, ParseDumpSignalError};
pub use fail_on::{FailOn, ParseFailOnError};
pub use figures::{DeviceFigures, Figures, KindFigures, SiteFigures};
pub use foreign::{FOREIGN_FRAME, ForeignFrame, register_frames};
pub use metrics::Metrics;
pub use open_file::{discards_reports, open_report_file, write_report_file};
pub use output::{emit, exit_code, finish, write_requested};
#[doc(hidden)]
pub use paths::Paths;
pub use pattern::ParsePatternError;
pub use problem::Problem;
pub use recording::{
    announce_recording, end_recording, start_recording, start_recording_with, warn_of_counts,
};
pub use report_trait::Report;
pub use resolve::resolve_words;
pub use run_records::note_crate;
pub use settings::{Colour, ReportSettings};
pub use size::ByteSize;
pub use stats::{ContextPool, SiteNames, Stats};
#[doc(hidden)]
pub use suppress::match_suppressions;
#[doc(hidden)]
pub use words::{amount_of, in_columns, sum};
