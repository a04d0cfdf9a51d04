//! The records for `cuguard run`, which sums up the reports of all processes.
//!
//! The command creates a private folder, and names it in `CUGUARD_RUN`. Each record is one line in its file `records`, with
//! fields separated by tabs, written in one piece:
//!
//! | record | fields |
//! |---|---|
//! | `start` | process; only of the program that the command started, or had cargo start: the library is loaded |
//! | `crate` | process: the cuguard crate in it uses the driver, and makes a report of its own |
//! | `leak` | process: guards of the cuguard crate in it have leaked. The crate writes it |
//! | `use` | process, command line: the process has used the driver |
//! | `driver` | process, file: the process uses this driver, and not the simulated GPU, as it should |
//! | `none` | process: nothing was recorded in it, and the report is that of the cuguard crate: its `use` does not count |
//! | `recording` | process, file: what the process allocates and frees is recorded there. The cuguard crate writes it, too, with `crate` before it |
//! | `end` | process, reason, lost bytes and count, reachable bytes and count, bytes and count of memory that was destroyed with its context, number of growing call sites, number of refused allocations, sum in words |
//!
//! `CUGUARD_RUN_REPORT` is the `LEAK_REPORT` that the command started the program with. The command applies the exit code in it; in a
//! process with another `LEAK_REPORT`, the process does.
//!
//! A report for standard error that is closed goes to the file `report-PROCESS`, and the command prints it.

use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use cuguard_report::audit::Rendered;
use cuguard_report::phrase::short_command;

use crate::process::{Reason, facts};
use crate::real;

fn append(folder: &Path, name: &str, text: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.create(true).append(true).mode(0o600);
    options.custom_flags(libc::O_NOFOLLOW);
    options.open(folder.join(name))?.write_all(text.as_bytes())
}

fn record(fields: &[&str]) {
    if let Some(folder) = &facts::start().run_folder {
        // A process of another user cannot write there.
        let _ = append(folder, "records", &(fields.join("\t") + "\n"));
    }
}

/// One line without control characters.
fn plain(text: &str, most: usize) -> String {
    let mut plain = String::new();
    for character in text.chars().take(most) {
        match character.is_control() {
            true => {
                let _ = write!(plain, "{}", character.escape_default());
            }
            false => plain.push(character),
        }
    }
    if text.chars().nth(most).is_some() {
        plain.push('…');
    }
    plain
}

/// The command line of this process, as reports show it.
pub(crate) fn command() -> String {
    short_command(&cuguard_live::command_line())
}

/// Whether a file is in the folder. It is for the command, which reads it: a line that names it would lead nowhere.
pub(crate) fn contains(path: &Path) -> bool {
    let folder = facts::start().run_folder.as_ref();
    folder.is_some_and(|folder| path.starts_with(folder))
}

/// Records that the library is loaded into the command's own child, or into one of cargo that executed the command first.
/// The command's process id ends the folder's name; `runner` is the process id of the other.
pub(crate) fn note_start(runner: Option<&str>) {
    let Some(folder) = &facts::start().run_folder else {
        return;
    };
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    // SAFETY: always succeeds.
    let parent = unsafe { libc::getppid() };
    let process = facts::process().to_string();
    if name.rsplit('-').next() == Some(parent.to_string().as_str()) || runner == Some(&process) {
        record(&["start", &process]);
    }
}

/// Whether the cuguard crate in this process uses the driver.
static HAS_CRATE: AtomicBool = AtomicBool::new(false);

/// Records that the cuguard crate in this process uses the driver.
pub(crate) fn note_crate() {
    if !HAS_CRATE.swap(true, Ordering::Relaxed) {
        record(&["crate", &facts::process().to_string()]);
    }
}

/// Whether the cuguard crate in this process uses the driver, and makes a report of its own.
pub(crate) fn has_crate() -> bool {
    HAS_CRATE.load(Ordering::Relaxed)
}

/// Records that there is nothing to report.
pub(crate) fn note_none() {
    record(&["none", &facts::process().to_string()]);
}

/// Records that the process uses the driver.
pub(crate) fn note_use() {
    if facts::start().run_folder.is_none() {
        return;
    }
    let process = facts::process().to_string();
    record(&["use", &process, &command()]);
    // Whether it is the simulated GPU is known once it is found.
    real::driver();
    if let Some(path) = real::other_driver() {
        record(&["driver", &process, &plain(&path.to_string_lossy(), 4096)]);
    }
}

/// Records the file of the process's recording.
pub(crate) fn note_recording(path: &Path) {
    let process = facts::process().to_string();
    record(&["recording", &process, &plain(&path.to_string_lossy(), 4096)]);
}

/// Records the report.
pub(crate) fn note_end(made: &Rendered, reason: Reason) {
    let numbers = [
        made.lost.bytes,
        made.lost.count,
        made.reachable.bytes,
        made.reachable.count,
        made.destroyed.bytes,
        made.destroyed.count,
        made.growing,
        made.refused,
    ];
    let numbers = numbers.map(|number| number.to_string()).join("\t");
    let process = facts::process().to_string();
    let (reason, line) = (reason.to_string(), plain(&made.line, 1000));
    record(&["end", &process, &reason, &numbers, &line]);
}

/// Keeps a report that cannot be written to standard error. Returns whether there is a folder for it.
pub(crate) fn keep_report(text: &str) -> bool {
    let name = format!("report-{}", facts::process());
    let folder = facts::start().run_folder.as_deref();
    folder.is_some_and(|folder| append(folder, &name, text).is_ok())
}
