//! Makes the report, writes it, and sets the exit code.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use cuguard_report::audit::Rendered;
use cuguard_report::{ReportSettings, write_report_file};

use super::run_folder;
use crate::process::{Reason, facts, failure, settings};
use crate::{report, stderr};

/// The exit code that the report asks for, or 0.
static EXIT_CODE: AtomicI32 = AtomicI32::new(0);

/// Whether this process has written to its file.
static STARTED: AtomicBool = AtomicBool::new(false);

/// Makes the report. Formats that the settings do not ask for are empty.
pub(crate) fn make(reason: &Reason) -> Rendered {
    report::make(settings::get(), &reason.to_string(), failure())
}

/// Writes why there is no report. Async-signal-safe.
pub(crate) fn print_why(why: fmt::Arguments<'_>) {
    let mut buffer = [0_u8; 160];
    let mut rest = &mut buffer[..];
    let process = facts::process();
    let _ = writeln!(rest, "cuguard: process {process}: no report: {why}");
    let length = 160 - rest.len();
    stderr::print(std::str::from_utf8(&buffer[..length]).unwrap_or_default());
}

/// Writes the report as the settings say, records it for `cuguard run`, and keeps the exit code.
pub(crate) fn deliver(made: &Rendered, reason: Reason) {
    if run_folder::has_crate() && !report::has_findings() && failure().is_none() {
        // The crate reports what its guards leak. That nothing is lost would contradict it.
        return run_folder::note_none();
    }
    let settings = settings::get();
    let found = made.fails(settings.wanted_fail_on());
    let is_own = !facts::start().has_run_words;
    if let Some(code) = settings.wanted_exit_code().filter(|_| found && is_own) {
        EXIT_CODE.store(code.into(), Ordering::Release);
    }
    write(made);
    run_folder::note_end(made, reason);
}

/// Writes the report as the settings say.
pub(crate) fn write(made: &Rendered) {
    let text = text_for_stderr(made, settings::get());
    if stderr::exists() {
        stderr::write_report(&text);
    } else if !text.is_empty() {
        run_folder::keep_report(&text);
    }
}

/// Writes the file, if there is one. Returns what goes to standard error.
fn text_for_stderr(made: &Rendered, settings: &ReportSettings) -> String {
    let [text, json, github] = settings.wanted_formats();
    let file = settings.file_of(facts::process().unsigned_abs(), 0);
    let file = file.filter(|_| text || json);
    let mut stderr = String::new();
    if text && (json || file.is_none()) {
        stderr.push_str(&made.text);
    }
    if json && file.is_none() {
        stderr.push_str(&made.json);
    }
    if github {
        stderr.push_str(&made.github);
    }
    if let Some(path) = file {
        let report = if json { &made.json } else { &made.text };
        let shown = path.display();
        match to_file(&path, report) {
            Ok(true) => {}
            Ok(false) if run_folder::contains(&path) => {}
            Ok(false) => {
                let (process, command) = (facts::process(), run_folder::command());
                let line = &made.line;
                stderr.push_str(&format!(
                    "cuguard: process {process} ({command}): {line}; report in {shown}\n"
                ));
            }
            Err(error) => stderr.push_str(&format!(
                "cuguard: cannot write the report to {shown}: {error}; here it is\n{report}"
            )),
        }
    }
    stderr
}

/// Writes a report to a file. Under `cuguard run`, which has truncated it, reports are appended: several processes may
/// have one file. A report that the program asked for stays in front of the last one.
fn to_file(path: &Path, text: &str) -> io::Result<bool> {
    write_report_file(path, text, || {
        !STARTED.swap(true, Ordering::Relaxed) && facts::start().run_folder.is_none()
    })
}

/// Ends the process with the code that the report asks for, if it does.
pub(crate) fn replace_exit_code(flush: bool) {
    let code = EXIT_CODE.load(Ordering::Acquire);
    if code == 0 || !facts::is_own_process() {
        return;
    }
    if flush {
        // SAFETY: allowed in an exit handler, and what `exit` does after the handlers.
        unsafe { libc::fflush(std::ptr::null_mut()) };
    }
    exit_now(code);
}

/// Ends the process at once: with this code, or with the one that the report asks for.
pub(crate) fn exit_now(status: i32) -> ! {
    let code = match facts::is_own_process() {
        true => EXIT_CODE.load(Ordering::Acquire),
        false => 0,
    };
    let status = if code == 0 { status } else { code };
    loop {
        // SAFETY: ends the process.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}
