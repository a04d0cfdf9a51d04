//! Lines on standard error.

use std::fs::File;
use std::io::{self, Write};
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd};

/// Writes a line to file descriptor 2. Not with `eprintln!`: a test harness captures that until the
/// test ends, which loses the line if the process aborts, and its lock may be held by a thread that
/// waits for this one.
pub(crate) fn print_line(line: &str) {
    let descriptor = io::stderr().as_raw_fd();
    // SAFETY: the descriptor of standard error, which is used and never closed.
    let mut stderr = ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) });
    // It may be closed.
    let _ = stderr.write_all(format!("cuguard-sim: {line}\n").as_bytes());
}
