//! Writes the report, and sets the exit code.

use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{FromRawFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use cuguard_report::{ReportSettings, open_report_file};

use super::{Made, Reason, run_folder, settings, start};

/// The exit code that the report asks for, or 0.
static EXIT_CODE: AtomicI32 = AtomicI32::new(0);

/// Whether this process has written to its file.
static STARTED: AtomicBool = AtomicBool::new(false);

/// Device and inode of a descriptor.
pub(super) fn identity(descriptor: RawFd) -> Option<[u64; 2]> {
    status(descriptor).map(|status| [status.st_dev, status.st_ino])
}

fn status(descriptor: RawFd) -> Option<libc::stat> {
    // SAFETY: plain data, for which zero is valid.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: writes to the variable.
    let code = unsafe { libc::fstat(descriptor, &mut status) };
    (code == 0).then_some(status)
}

/// Whether descriptor 2 is standard error. A program that closed it may have another file there, which is not for
/// reports. A pipe, a device, or a file that can only be written is taken for a log that the program put there.
fn has_stderr() -> bool {
    let Some(status) = status(2) else {
        return false;
    };
    // SAFETY: reads the flags of a descriptor.
    let flags = unsafe { libc::fcntl(2, libc::F_GETFL) };
    let access = flags & libc::O_ACCMODE;
    if flags < 0 || access == libc::O_RDONLY {
        return false;
    }
    let is_first = start::first_stderr() == [status.st_dev, status.st_ino];
    let kind = status.st_mode & libc::S_IFMT;
    let is_stream = matches!(kind, libc::S_IFIFO | libc::S_IFCHR);
    is_first || is_stream || access == libc::O_WRONLY
}

/// Writes to descriptor 2 without a lock, which another thread may hold. Async-signal-safe. A pipe without a reader does not
/// end the process: it is not the program that writes.
fn write_stderr(text: &str) {
    // SAFETY: sets are plain data, for which zero is valid, and all can be written to. Where the signal was pending, it stays.
    unsafe {
        let (mut pipe, mut before, mut pending): (libc::sigset_t, libc::sigset_t, libc::sigset_t) =
            std::mem::zeroed();
        libc::sigemptyset(&mut pipe);
        libc::sigaddset(&mut pipe, libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, &pipe, &mut before);
        libc::sigpending(&mut pending);
        write_all(text);
        if libc::sigismember(&pending, libc::SIGPIPE) != 1 {
            let now: libc::timespec = std::mem::zeroed();
            while libc::sigtimedwait(&pipe, std::ptr::null_mut(), &now) < 0
                && io::Error::last_os_error().raw_os_error() == Some(libc::EINTR)
            {}
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
    }
}

fn write_all(text: &str) {
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        // SAFETY: the bytes can be read.
        let written = unsafe { libc::write(2, rest.as_ptr().cast(), rest.len()) };
        match usize::try_from(written) {
            Ok(0) => return,
            Ok(written) => rest = rest.get(written..).unwrap_or_default(),
            Err(_) => match io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => {}
                // A pipe whose reader is slow.
                Some(libc::EAGAIN) => {
                    let mut wanted = libc::pollfd {
                        fd: 2,
                        events: libc::POLLOUT,
                        revents: 0,
                    };
                    // SAFETY: one descriptor. The caller's time limit holds.
                    unsafe { libc::poll(&mut wanted, 1, 1000) };
                }
                _ => return,
            },
        }
    }
}

/// Writes a line about the report to standard error. Async-signal-safe.
pub(crate) fn print(text: &str) {
    if has_stderr() {
        write_stderr(text);
    }
}

/// Writes why there is no report. Async-signal-safe.
pub(super) fn print_why(why: fmt::Arguments<'_>) {
    let mut buffer = [0_u8; 160];
    let mut rest = &mut buffer[..];
    let process = start::process();
    let _ = writeln!(rest, "cuguard: process {process}: no report: {why}");
    let length = 160 - rest.len();
    print(std::str::from_utf8(&buffer[..length]).unwrap_or_default());
}

/// Writes the report as the settings say, records it for `cuguard run`, and keeps the exit code.
pub(super) fn deliver(made: &Made, reason: Reason) {
    let settings = settings::get();
    let found = made.fails(settings.wanted_fail_on());
    // `cuguard run` sets the exit code itself.
    let is_alone = start::start().run_folder.is_none();
    if let Some(code) = settings.wanted_exit_code().filter(|_| found && is_alone) {
        EXIT_CODE.store(code.into(), Ordering::Release);
    }
    write(made);
    run_folder::note_end(made, reason);
}

/// Writes the report as the settings say.
pub(super) fn write(made: &Made) {
    let text = text_for_stderr(made, settings::get());
    if has_stderr() {
        write_stderr(&text);
    } else if !text.is_empty() {
        run_folder::keep_report(&text);
    }
}

/// Writes the file, if there is one. Returns what goes to standard error.
fn text_for_stderr(made: &Made, settings: &ReportSettings) -> String {
    let [text, json, github] = settings.wanted_formats();
    let file = settings.file_of(start::process().unsigned_abs(), 0);
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
            Ok(false) => {
                let (process, command) = (start::process(), run_folder::command_line());
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
/// have one file. The program's own output is never truncated; returns whether it is that.
fn to_file(path: &Path, text: &str) -> io::Result<bool> {
    let mut file = open_report_file(path)?;
    let wanted = {
        use std::os::unix::fs::MetadataExt;
        let info = file.metadata()?;
        info.is_file().then(|| [info.dev(), info.ino()])
    };
    let own = [1, 2]
        .into_iter()
        .find(|own| wanted.is_some() && identity(*own) == wanted);
    if let Some(own) = own {
        // Through a duplicate, so that the program's later output follows the report.
        // SAFETY: the duplicate is a new descriptor, if there is one.
        let mut own = unsafe {
            let duplicate = libc::fcntl(own, libc::F_DUPFD_CLOEXEC, 3);
            if duplicate < 0 {
                return Err(io::Error::last_os_error());
            }
            File::from_raw_fd(duplicate)
        };
        own.write_all(text.as_bytes())?;
        return Ok(true);
    }
    // A report that the program asked for stays in front of the last one.
    let is_first = !STARTED.swap(true, Ordering::Relaxed);
    if is_first && wanted.is_some() && start::start().run_folder.is_none() {
        file.set_len(0)?;
    }
    file.write_all(text.as_bytes())?;
    Ok(false)
}

/// Ends the process with the code that the report asks for, if it does.
pub(super) fn replace_exit_code(flush: bool) {
    let code = EXIT_CODE.load(Ordering::Acquire);
    if code == 0 || !start::is_own_process() {
        return;
    }
    if flush {
        // SAFETY: allowed in an exit handler, and what `exit` does after the handlers.
        unsafe { libc::fflush(std::ptr::null_mut()) };
    }
    exit_now(code);
}

/// Ends the process at once: with this code, or with the one that the report asks for.
pub(super) fn exit_now(status: i32) -> ! {
    let code = match start::is_own_process() {
        true => EXIT_CODE.load(Ordering::Acquire),
        false => 0,
    };
    let status = if code == 0 { status } else { code };
    loop {
        // SAFETY: ends the process.
        unsafe { libc::syscall(libc::SYS_exit_group, status) };
    }
}
