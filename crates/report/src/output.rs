//! What is reported of a context, written to standard error or a file in one piece, and the exit code.

use std::collections::HashSet;
use std::env;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError, TryLockError, mpsc};
use std::thread;
use std::time::Duration;

use cuguard_registry::{Snapshot, SnapshotReason};

use crate::open_file::write_report_file;
use crate::parse::VARIABLE;
use crate::paths::Paths;
use crate::prepare::{PreparedSnapshot, View};
use crate::problem::Problem;
use crate::settings::{Colour, ReportSettings};
use crate::summary::Summary;
use crate::{github, json, run_records, suppress, text};

/// 0 until a report sets an exit code.
static EXIT_CODE: AtomicI32 = AtomicI32::new(0);

/// The files that this process has truncated. Locked while one is written, so that reports of several
/// threads do not mix.
static STARTED: LazyLock<Mutex<HashSet<PathBuf>>> = LazyLock::new(Mutex::default);

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
    deliver(&prepared, settings, at_exit);
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
        print(&(line + "\n"), at_exit);
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
    deliver(&prepared, settings, true);
}

/// Prints the suppressions that no report used. Called last, when the process exits.
pub fn finish() {
    if let Some(line) = suppress::unused() {
        print(&line, true);
    }
}

/// The exit code of the process: set when a leak was reported and the settings have a code.
pub fn exit_code() -> Option<i32> {
    Some(EXIT_CODE.load(Ordering::Relaxed)).filter(|code| *code != 0)
}

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
        Ok(is_own_output) if is_own_output || is_late || run_records::is_in_folder(path) => {
            String::new()
        }
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
    write_report_file(path, text, || {
        started.insert(known()) && !run_records::is_in_folder(path)
    })
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

    use super::{deliver, emit, exit_code, to_file};
    use crate::ReportSettings;
    use crate::prepare::{PreparedSnapshot, View};
    use crate::tests_support::read;
    use cuguard_registry::{Group, ResourceKind, Snapshot, SnapshotReason};
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
