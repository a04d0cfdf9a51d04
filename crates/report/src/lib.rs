//! From a snapshot to words: what a report says, and where it goes.
//!
//! ```text
//!     Snapshot ──► Prepared ──► text ───┐
//!                     │         json ───┼──► output: stderr, a file
//!                     │         github ─┘
//!                  names of functions, suppressions
//! ```
//!
//! [`emit`] is the entry point: it is called at the end of a context, with the settings that
//! `LEAK_REPORT` or the program gave.
//!
//! What this folder must not know: the driver and its types, guards, and how the registry stores
//! what it knows. It reads snapshots only. Nothing here panics or fails towards the caller: a report
//! is made while contexts are dropped, maybe while a panic unwinds.

#![forbid(unsafe_code)]

mod changes;
mod checkpoint;
mod form;
mod frames;
mod github;
mod json;
#[cfg(test)]
pub(crate) mod json_reader;
mod json_writer;
mod merge;
pub mod oom;
mod output;
mod parse;
mod paths;
mod pattern;
mod precedence;
mod prepare;
#[cfg(test)]
mod prepare_tests;
mod render;
mod settings;
mod size;
mod suppress;
mod symbols;
#[cfg(test)]
mod testing;
mod text;
#[cfg(test)]
mod text_tests;
pub(crate) mod words;

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use cuguard_registry::Snapshot;

pub use changes::display_diff;
pub use checkpoint::Checkpoint;
pub(crate) use json_writer::Writer;
pub use parse::Problem;
pub(crate) use paths::Paths;
pub use pattern::PatternError;
pub use render::Report;
pub use settings::{Colour, ReportSettings};
pub use size::ByteSize;
pub(crate) use text::description;

/// 0 as long as nothing asks for an exit code.
static EXIT_CODE: AtomicI32 = AtomicI32::new(0);

/// Reports the end of a context, as the settings say. Returns whether it leaked: whether there is
/// anything that was not freed, could not be freed, and is not suppressed.
///
/// Without a report a leak is one line. With one, a context that leaked nothing is one line.
///
/// `at_exit` says that the process is ending: other threads may stand still then with locks in their
/// hands, so none is waited for without end.
pub fn emit(snapshot: &Snapshot, settings: &ReportSettings, at_exit: bool) -> bool {
    let suppressions = settings.suppressions();
    if !settings.is_on() && suppressions.is_empty() {
        // No names are looked up.
        if !snapshot.is_clean() {
            let found = words::Found::in_snapshot(snapshot);
            warn(&found, settings, &Paths::new(), at_exit);
        }
        return !snapshot.is_clean();
    }
    let prepared = prepare::Prepared::new(snapshot, settings.view());
    let leaked = prepared.is_leak();
    if !settings.is_on() {
        if leaked {
            warn(
                &github::found(&prepared),
                settings,
                &prepared.paths,
                at_exit,
            );
        }
        return leaked;
    }
    suppressions.list_at_exit();
    if leaked && let Some(code) = settings.wanted_exit_code() {
        // The first context that leaks decides, as the first failure of a program does.
        let code = i32::from(code);
        let _ = EXIT_CODE.compare_exchange(0, code, Ordering::Relaxed, Ordering::Relaxed);
    }
    output::deliver(&prepared, settings, at_exit);
    leaked
}

/// The one line about a leak that nobody asked for: into the log, or on standard error where no
/// logger takes it.
fn warn(found: &words::Found<'_>, settings: &ReportSettings, paths: &Paths, at_exit: bool) {
    if settings.is_silent() {
        return;
    }
    let line = found.warning(paths);
    if !is_logged_at_all() {
        output::line(&(line + "\n"), at_exit);
    } else if !at_exit {
        if !log(&line) {
            output::line(&(line + "\n"), at_exit);
        }
    } else {
        log_soon(line);
    }
}

/// Whether warnings reach a logger. Many programs have none, or one that shows errors only.
fn is_logged_at_all() -> bool {
    log::max_level().min(log::STATIC_MAX_LEVEL) >= log::LevelFilter::Warn
}

/// Whether the program's logger takes the line.
fn log(line: &str) -> bool {
    let taken = log::log_enabled!(target: "cuguard", log::Level::Warn);
    if taken {
        log::warn!(target: "cuguard", "{line}");
    }
    taken
}

/// What the program's logger does nobody knows, so at the end of the process it is called on a thread
/// of its own, and only waited for a while.
fn log_soon(line: String) {
    let (done, wait) = mpsc::channel();
    let copy = line.clone();
    let spawned = thread::Builder::new().spawn(move || {
        let _ = done.send(log(&copy));
    });
    let taken = match spawned {
        Ok(_) => wait.recv_timeout(Duration::from_secs(2)),
        Err(_) => Ok(false),
    };
    if taken != Ok(true) {
        output::line(&(line + "\n"), true);
    }
}

/// The last words at the end of the process: suppressions that no report used.
pub fn finish() {
    if let Some(line) = suppress::unused() {
        output::line(&line, true);
    }
}

/// The exit code that the process should end with: set when a leak was reported and the settings
/// name a code.
pub fn exit_code() -> Option<i32> {
    Some(EXIT_CODE.load(Ordering::Relaxed)).filter(|code| *code != 0)
}

#[cfg(test)]
mod tests {
    use super::{ReportSettings, emit, exit_code};
    use cuguard_registry::{Group, Kind, Snapshot, SnapshotReason};

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
        leaky.live.push(Group::new(Kind::Device, "f32", 1, 4));
        assert!(!emit(&clean, &to(21), false));
        assert_eq!(exit_code(), None);
        assert!(emit(&leaky, &ReportSettings::off().exit_code(22), false));
        assert_eq!(exit_code(), None);
        assert!(!emit(&leaky, &to(23).suppress("f32"), false));
        assert_eq!(exit_code(), None);
        assert!(emit(&leaky, &to(24), false));
        assert!(emit(&leaky, &to(25), false));
        assert_eq!(exit_code(), Some(24));
        // Other tests of this program make contexts, and those end the process with it.
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
