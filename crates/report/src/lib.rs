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
mod foreign;
mod format;
mod frames;
mod github;
mod json;
mod json_value;
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

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use cuguard_registry::Snapshot;

use crate::paths::Paths;
use crate::prepare::{PreparedSnapshot, View};
use crate::summary::Summary;

pub use audit::{FrameClass, FrameNames};
pub use checkpoint::Checkpoint;
pub use cuguard_recording::Policy as RecordPolicy;
pub use demangle::demangle;
pub use diff_text::display_diff;
pub use dump_signal::{DumpSignal, ParseDumpSignalError};
pub use fail_on::{FailOn, ParseFailOnError};
pub use foreign::{FOREIGN_FRAME, ForeignFrame, register_frames};
pub use open_file::{open_report_file, write_report_file};
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

/// 0 until a report sets an exit code.
static EXIT_CODE: AtomicI32 = AtomicI32::new(0);

/// Reports the end of a context. Returns whether it leaked: whether anything was not freed or could not be
/// freed, and is not suppressed.
///
/// Without a report a leak is one line. With one, a context without leaks is one line.
///
/// `at_exit` says that the process exits: other threads may be stopped while they hold locks, so no lock
/// is waited for without a limit.
pub fn emit(snapshot: &Snapshot, settings: &ReportSettings, at_exit: bool) -> bool {
    let suppressions = &settings.suppressions;
    if !settings.is_on() && suppressions.is_empty() {
        // No addresses are resolved.
        if !snapshot.is_clean() {
            run_records::note_leak();
            let summary = Summary::of_snapshot(snapshot);
            warn(&summary, settings, &Paths::new(), at_exit);
        }
        return !snapshot.is_clean();
    }
    let prepared = PreparedSnapshot::new(snapshot, View::of(settings));
    let leaked = prepared.is_leak();
    // Whatever is reported here: `cuguard run` counts the leaks of all processes.
    let is_of_run = leaked && run_records::note_leak();
    if !settings.is_on() {
        if leaked {
            let summary = Summary::of(&prepared);
            warn(&summary, settings, &prepared.paths, at_exit);
        }
        return leaked;
    }
    suppressions.list_at_exit();
    if leaked
        && !is_of_run
        && let Some(code) = settings.wanted_exit_code()
    {
        // The first context that leaks decides.
        let code = i32::from(code);
        let _ = EXIT_CODE.compare_exchange(0, code, Ordering::Relaxed, Ordering::Relaxed);
    }
    output::deliver(&prepared, settings, at_exit);
    leaked
}

/// The one line about a leak without a report: to the log, or to standard error without a logger.
fn warn(summary: &Summary<'_>, settings: &ReportSettings, paths: &Paths, at_exit: bool) {
    if settings.is_silent() {
        return;
    }
    let line = summary.warning(paths);
    let max_level = log::max_level().min(log::STATIC_MAX_LEVEL);
    let is_logged = max_level >= log::LevelFilter::Warn
        && match at_exit {
            true => log_at_exit(line.clone()),
            false => log(&line),
        };
    if !is_logged {
        output::print(&(line + "\n"), at_exit);
    }
}

/// Whether the program's logger accepts the line.
fn log(line: &str) -> bool {
    let is_enabled = log::log_enabled!(target: "cuguard", log::Level::Warn);
    if is_enabled {
        log::warn!(target: "cuguard", "{line}");
    }
    is_enabled
}

/// At exit the program's logger may block for ever, so it runs on another thread, with a time limit.
fn log_at_exit(line: String) -> bool {
    let (sender, receiver) = mpsc::channel();
    let spawned = thread::Builder::new().spawn(move || {
        let _ = sender.send(log(&line));
    });
    spawned.is_ok() && receiver.recv_timeout(Duration::from_secs(2)) == Ok(true)
}

/// Writes a report of a context that is in use where the settings say. The exit code does not depend on it. Other threads run, and
/// no lock is waited for without a limit.
pub fn write_requested(snapshot: &Snapshot, settings: &ReportSettings) {
    let prepared = PreparedSnapshot::new(snapshot, View::of(settings));
    output::deliver(&prepared, settings, true);
}

/// Prints the suppressions that no report used. Called last, when the process exits.
pub fn finish() {
    if let Some(line) = suppress::unused() {
        output::print(&line, true);
    }
}

/// The exit code of the process: set when a leak was reported and the settings have a code.
pub fn exit_code() -> Option<i32> {
    Some(EXIT_CODE.load(Ordering::Relaxed)).filter(|code| *code != 0)
}

#[cfg(test)]
mod tests {
    use super::{ReportSettings, emit, exit_code};
    use cuguard_registry::{Group, ResourceKind, Snapshot, SnapshotReason};

    /// One test, as the exit code belongs to the process.
    #[test]
    fn a_leak_that_is_reported_sets_the_exit_code_once() {
        let file = std::env::temp_dir().join(format!("cuguard-emit-{}.txt", std::process::id()));
        let to = |code| {
            ReportSettings::text()
                .file(file.to_str().unwrap())
                .unwrap()
                .exit_code(code)
        };
        let mut clean = Snapshot::default();
        clean.info.reason = SnapshotReason::Close;
        let mut leaky = clean.clone();
        leaky
            .live
            .push(Group::new(ResourceKind::Device, "f32", 1, 4));
        assert!(!emit(&clean, &to(21), false));
        assert_eq!(exit_code(), None);
        assert!(emit(&leaky, &ReportSettings::off().exit_code(22), false));
        assert_eq!(exit_code(), None);
        assert!(!emit(&leaky, &to(23).suppress("f32"), false));
        assert_eq!(exit_code(), None);
        assert!(emit(&leaky, &to(24), false));
        assert!(emit(&leaky, &to(25), false));
        assert_eq!(exit_code(), Some(24));
        // Other tests of this process must not exit with it.
        super::EXIT_CODE.store(0, super::Ordering::Relaxed);
        let written = std::fs::read_to_string(&file).unwrap();
        assert_eq!(written.matches("nothing leaked").count(), 1, "{written}");
        assert_eq!(written.matches("suppressed 4 B").count(), 1, "{written}");
        assert_eq!(
            written
                .matches("leaked 4 B in 1 allocation of device memory")
                .count(),
            2
        );
        std::fs::remove_file(file).unwrap();
    }
}
