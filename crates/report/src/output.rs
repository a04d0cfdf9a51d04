//! Writes reports to standard error or a file, each in one piece.

use std::collections::HashSet;
use std::env;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::Duration;

use cuguard_registry::SnapshotReason;

use crate::open_file::write_report_file;
use crate::parse::VARIABLE;
use crate::prepare::PreparedSnapshot;
use crate::problem::Problem;
use crate::settings::{Colour, ReportSettings};
use crate::summary::Summary;
use crate::{github, json, text};

/// The files that this process has truncated. Locked while one is written, so that reports of several
/// threads do not mix.
static STARTED: LazyLock<Mutex<HashSet<PathBuf>>> = LazyLock::new(Mutex::default);

/// Writes the report as the settings say. What cannot be written to a file goes to standard error with the
/// reason; what cannot be written there is lost.
pub(crate) fn deliver(prepared: &PreparedSnapshot<'_>, settings: &ReportSettings, at_exit: bool) {
    let formats = settings.formats();
    let to_text = |coloured| {
        let max = Some(settings.shown());
        text::render(prepared, text::Look { max, coloured })
    };
    let to_json = || json::render(prepared, settings.max) + "\n";
    let mut stderr = String::new();
    let colour = settings.wanted_colour();
    if formats.text && (formats.json || settings.file.is_none()) {
        stderr.push_str(&to_text(is_coloured(colour)));
    }
    if formats.json && settings.file.is_none() {
        stderr.push_str(&to_json());
    }
    if formats.github {
        let root = env::var("GITHUB_WORKSPACE").ok();
        stderr.push_str(&github::render(prepared, settings.shown(), root.as_deref()));
    }
    let wants_file = formats.text || formats.json;
    if let Some(pattern) = settings.file.as_ref().filter(|_| wants_file) {
        let report = if formats.json {
            to_json()
        } else {
            to_text(colour == Colour::Always)
        };
        let path = pattern.path(std::process::id(), prepared.snapshot.info.context);
        stderr.push_str(&write_file(&path, &report, prepared, at_exit));
    }
    print(&stderr, at_exit);
}

/// Writes a report to a file. Returns the text for standard error: the sum and the file, or the report
/// where the file cannot be written.
fn write_file(path: &Path, report: &str, prepared: &PreparedSnapshot<'_>, at_exit: bool) -> String {
    let shown = path.display();
    let is_late = prepared.snapshot.info.reason == SnapshotReason::LateDrops;
    match to_file(path, report, at_exit) {
        // Standard error already has the report, or what it is about.
        Ok(is_own_output) if is_own_output || is_late => String::new(),
        Ok(_) => {
            let sum = Summary::of(prepared).line(&prepared.paths);
            format!("{sum}; report in {shown}\n")
        }
        Err(error) => format!(
            "cuguard: cannot write the leak report to {shown}: {error}; here it is\n{report}"
        ),
    }
}

/// Writes to standard error in one piece, also when the process exits.
pub(crate) fn print(text: &str, at_exit: bool) {
    // Without a lock that another thread may hold.
    if text.is_empty() {
        return;
    }
    // At exit another thread may hold the lock of standard error and never release it.
    if !at_exit || !print_without_lock(text) {
        let _ = write!(io::stderr().lock(), "{text}");
    }
}

/// Prints what cannot be used in `LEAK_REPORT`.
pub(crate) fn print_problems(problems: &[Problem]) {
    let lines: String = problems
        .iter()
        .map(|problem| format!("cuguard: {VARIABLE}: {problem}\n"))
        .collect();
    print(&lines, false);
}

/// Writes to a duplicate of standard error, which has no lock.
fn print_without_lock(text: &str) -> bool {
    let duplicate = io::stderr().as_fd().try_clone_to_owned();
    duplicate.is_ok_and(|own| {
        let _ = fs::File::from(own).write_all(text.as_bytes());
        true
    })
}

/// Locks the list at exit, where another thread may hold it and never release it.
fn lock_at_exit() -> io::Result<MutexGuard<'static, HashSet<PathBuf>>> {
    for _ in 0..200 {
        match STARTED.try_lock() {
            Ok(started) => return Ok(started),
            Err(TryLockError::Poisoned(started)) => return Ok(started.into_inner()),
            Err(TryLockError::WouldBlock) => thread::sleep(Duration::from_millis(10)),
        }
    }
    Err(io::Error::other("another report is still being written"))
}

/// Truncates the file for the first report of this process, and appends the others. Returns whether it is the program's own
/// output.
fn to_file(path: &Path, text: &str, at_exit: bool) -> io::Result<bool> {
    let mut started = if at_exit {
        lock_at_exit()?
    } else {
        STARTED.lock().unwrap_or_else(PoisonError::into_inner)
    };
    // A file may have several names.
    let known = || fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    write_report_file(path, text, || started.insert(known()))
}

/// Whether text on standard error is coloured.
pub(crate) fn is_coloured(colour: Colour) -> bool {
    let set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = || env::var_os("TERM").is_some_and(|term| term == "dumb");
    match colour {
        Colour::Always => true,
        Colour::Never => false,
        Colour::Auto => io::stderr().is_terminal() && !set("NO_COLOR") && !dumb(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;
    use std::thread;

    use super::{deliver, to_file};
    use crate::ReportSettings;
    use crate::prepare::{PreparedSnapshot, View};
    use crate::tests_support::read;
    use cuguard_registry::{Group, ResourceKind, Snapshot};
    use cuguard_testing::Folder;

    fn leaky(context: u64) -> Snapshot {
        let mut snapshot = Snapshot::default();
        snapshot.info.context = context;
        snapshot
            .live
            .push(Group::new(ResourceKind::Device, "f32", 1, 4));
        snapshot
    }

    fn report(context: u64, settings: &ReportSettings) {
        let snapshot = leaky(context);
        deliver(
            &PreparedSnapshot::new(&snapshot, View::PLAIN),
            settings,
            false,
        );
    }

    fn json_to(path: &Path) -> ReportSettings {
        ReportSettings::json().file(path.to_str().unwrap()).unwrap()
    }

    #[test]
    fn a_process_begins_a_file_once_and_then_appends() {
        let folder = Folder::new("append");
        let path = folder.join("leaks.json");
        fs::write(&path, "from an earlier run").unwrap();
        report(1, &json_to(&path));
        // The same file by another name.
        report(
            2,
            &json_to(
                &folder
                    .join("../")
                    .join(folder.file_name().unwrap())
                    .join("leaks.json"),
            ),
        );
        let written = fs::read_to_string(&path).unwrap();
        let contexts: Vec<_> = written
            .lines()
            .map(|line| read(line)["context"]["id"].clone())
            .collect();
        assert_eq!(contexts, [1, 2]);
    }

    #[test]
    fn one_file_for_each_context() {
        let folder = Folder::new("each");
        for context in [1, 2] {
            report(context, &json_to(&folder.join("leaks-%c-%p.json")));
        }
        let process = std::process::id();
        for context in [1, 2] {
            let path = folder.join(format!("leaks-{context}-{process}.json"));
            read(&fs::read_to_string(path).unwrap());
        }
    }

    #[test]
    fn reports_of_many_threads_do_not_mix() {
        let folder = Folder::new("threads");
        let path = folder.join("leaks.json");
        thread::scope(|scope| {
            for context in 0..16 {
                let settings = json_to(&path);
                scope.spawn(move || report(context, &settings));
            }
        });
        let written = fs::read_to_string(&path).unwrap();
        assert_eq!(written.lines().count(), 16);
        written.lines().for_each(|line| drop(read(line)));
    }

    #[test]
    fn what_cannot_be_written_is_an_error_and_no_panic() {
        let folder = Folder::new("refused");
        assert!(to_file(&folder, "x", false).is_err());
        assert!(to_file(&folder.join("missing/leaks.txt"), "x", true).is_err());
        if Path::new("/dev/full").exists() {
            assert!(to_file(Path::new("/dev/full"), "x", false).is_err());
        }
        if Path::new("/dev/null").exists() {
            assert!(to_file(Path::new("/dev/null"), "x", true).is_ok());
        }
    }
}
