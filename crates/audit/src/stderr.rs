//! Standard error: whether descriptor 2 is that, and how to write to it from any thread.
//!
//! A program may have closed standard error, have a file of its own there, or a pipe that nobody reads. It must not notice
//! that this library writes. It knows nothing of what is written.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long a message may wait for the reader of a full pipe, on a thread of the program.
const PATIENCE: Duration = Duration::from_secs(1);

/// Device and inode of standard error when the process started.
static FIRST: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// Keeps what standard error is. The program's own code does not run yet.
pub(crate) fn note_first() {
    if let Some(identity) = identity(2) {
        for (word, value) in FIRST.iter().zip(identity) {
            word.store(value, Ordering::Relaxed);
        }
    }
}

/// Device and inode of a descriptor.
fn identity(descriptor: RawFd) -> Option<[u64; 2]> {
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
pub(crate) fn exists() -> bool {
    let Some(status) = status(2) else {
        return false;
    };
    // SAFETY: reads the flags of a descriptor.
    let flags = unsafe { libc::fcntl(2, libc::F_GETFL) };
    let access = flags & libc::O_ACCMODE;
    if flags < 0 || access == libc::O_RDONLY {
        return false;
    }
    let first = FIRST.each_ref().map(|word| word.load(Ordering::Relaxed));
    let is_first = first == [status.st_dev, status.st_ino];
    let kind = status.st_mode & libc::S_IFMT;
    let is_stream = matches!(kind, libc::S_IFIFO | libc::S_IFCHR);
    is_first || is_stream || access == libc::O_WRONLY
}

/// Writes a message on a thread of the program, if there is a standard error. What a pipe has no room for is lost after a
/// second. Async-signal-safe.
pub(crate) fn print(text: &str) {
    if exists() {
        without_signal(|| write(text, Some(Instant::now() + PATIENCE)));
    }
}

/// Writes a report, and waits for a slow reader: on the reporting thread, for which others do not wait for ever. The caller
/// has checked that standard error [exists]. Async-signal-safe.
pub(crate) fn write_report(text: &str) {
    without_signal(|| write(text, None));
}

/// Runs `write` so that a pipe without a reader does not end the process: it is not the program that writes.
fn without_signal(write: impl FnOnce()) {
    // SAFETY: sets are plain data, for which zero is valid, and all can be written to. Where the signal was pending, it stays.
    unsafe {
        let (mut pipe, mut before, mut pending): (libc::sigset_t, libc::sigset_t, libc::sigset_t) =
            std::mem::zeroed();
        libc::sigemptyset(&mut pipe);
        libc::sigaddset(&mut pipe, libc::SIGPIPE);
        libc::pthread_sigmask(libc::SIG_BLOCK, &pipe, &mut before);
        libc::sigpending(&mut pending);
        write();
        if libc::sigismember(&pending, libc::SIGPIPE) != 1 {
            let now: libc::timespec = std::mem::zeroed();
            while libc::sigtimedwait(&pipe, std::ptr::null_mut(), &now) < 0
                && io::Error::last_os_error().raw_os_error() == Some(libc::EINTR)
            {}
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
    }
}

/// Writes to descriptor 2 without a lock, which another thread may hold. Waits for room until then, or as long as it takes.
fn write(text: &str, until: Option<Instant>) {
    let mut rest = text.as_bytes();
    while !rest.is_empty() {
        // Also a pipe that blocks: then at least as much fits as a short message has.
        if until.is_some_and(|until| !has_room(until)) {
            return;
        }
        // SAFETY: the bytes can be read.
        let written = unsafe { libc::write(2, rest.as_ptr().cast(), rest.len()) };
        match usize::try_from(written) {
            Ok(0) => return,
            Ok(written) => rest = rest.get(written..).unwrap_or_default(),
            Err(_) => match io::Error::last_os_error().raw_os_error() {
                Some(libc::EINTR) => {}
                // A pipe whose reader is slow.
                Some(libc::EAGAIN) => {
                    wait_for_room(Duration::from_secs(1));
                }
                _ => return,
            },
        }
    }
}

/// Whether descriptor 2 has room, now or until then.
fn has_room(until: Instant) -> bool {
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if wait_for_room(left) {
            return true;
        }
        // A signal may have interrupted it.
        if Instant::now() >= until {
            return false;
        }
    }
}

/// Waits for room, at most so long. An error or a closed pipe counts as room: the write then returns it.
fn wait_for_room(most: Duration) -> bool {
    let mut wanted = libc::pollfd {
        fd: 2,
        events: libc::POLLOUT,
        revents: 0,
    };
    let most = most.as_millis().try_into().unwrap_or(i32::MAX);
    // SAFETY: one descriptor.
    unsafe { libc::poll(&mut wanted, 1, most) > 0 }
}
