//! From a snapshot to words: what a report says, and where it goes.
//!
//! ```text
//!     Snapshot ──► Prepared ──► text ─┐
//!                     │                ├──► output: stderr, a file
//!                     │         json ─┘
//!                  names of functions, suppressions
//! ```
//!
//! [`emit`] is the one door: it is called at the end of a context, with the settings that
//! `LEAK_REPORT` or the program gave.
//!
//! What this folder must not know: the driver and its types, guards, and how the registry stores
//! what it knows. It reads snapshots only. Nothing here panics or fails towards the caller: a report
//! is made while contexts are dropped, maybe while a panic unwinds.

#![forbid(unsafe_code)]

mod changes;
mod checkpoint;
mod frames;
mod json;
#[cfg(test)]
pub(crate) mod json_reader;
mod json_writer;
mod merge;
mod output;
mod parse;
mod pattern;
mod prepare;
mod settings;
mod suppress;
mod symbols;
mod text;
#[cfg(test)]
mod text_tests;
pub(crate) mod words;

use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::registry::Snapshot;

pub use checkpoint::Checkpoint;
pub(crate) use frames::Paths;
pub(crate) use json_writer::Writer;
pub use parse::Problem;
pub use pattern::PatternError;
pub use settings::{Colour, ReportSettings};
pub(crate) use text::description;

/// 0 as long as nothing asks for an exit code.
static EXIT_CODE: AtomicI32 = AtomicI32::new(0);

/// Reports the end of a context, as the settings say. Answers whether it leaked: whether there is
/// anything that was not freed, could not be freed, and is not suppressed.
///
/// Without a report a leak is one warning in the log. With one, a context that leaked nothing is
/// one line.
///
/// `at_exit` says that the process is ending: other threads may stand still then with locks in their
/// hands, so none is waited for without end.
pub(crate) fn emit(snapshot: &Snapshot, settings: &ReportSettings, at_exit: bool) -> bool {
    if !settings.is_on() {
        if !snapshot.is_clean() {
            warn(words::warning(snapshot), at_exit);
        }
        return !snapshot.is_clean();
    }
    let prepared = prepare::Prepared::new(snapshot, settings.suppressions());
    let leaked = prepared.is_leak();
    if leaked && let Some(code) = settings.exit_code {
        // The first context that leaks decides, as the first failure of a program does.
        let code = i32::from(code);
        let _ = EXIT_CODE.compare_exchange(0, code, Ordering::Relaxed, Ordering::Relaxed);
    }
    output::deliver(&prepared, settings, at_exit);
    leaked
}

/// One line in the log. What the program's logger does nobody knows, so at the end of the process it
/// is called on a thread of its own, and only waited for a while.
fn warn(line: String, at_exit: bool) {
    if !at_exit {
        log::warn!("{line}");
        return;
    }
    let (done, wait) = mpsc::channel();
    let spawned = thread::Builder::new().spawn(move || {
        log::warn!("{line}");
        let _ = done.send(());
    });
    if spawned.is_ok() {
        let _ = wait.recv_timeout(Duration::from_secs(2));
    }
}

/// The exit code that the process should end with: set when a leak was reported and the settings
/// name a code.
pub(crate) fn exit_code() -> Option<i32> {
    Some(EXIT_CODE.load(Ordering::Relaxed)).filter(|code| *code != 0)
}

#[cfg(test)]
mod tests {
    use super::{ReportSettings, emit, exit_code};
    use crate::registry::{Group, Kind, Occasion, Snapshot};

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
        clean.about.occasion = Occasion::Close;
        let mut leaky = clean.clone();
        leaky.leaks.push(Group::new(Kind::Device, "f32", 1, 4));
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
        assert_eq!(written.matches("nothing leaked").count(), 2, "{written}");
        assert_eq!(
            written
                .matches("leaked 4 B in 1 allocation of device memory")
                .count(),
            2
        );
        std::fs::remove_file(file).unwrap();
    }
}
