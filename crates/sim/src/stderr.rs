//! Lines on standard error.

use std::ffi::c_void;
use std::io::{Error, ErrorKind};

unsafe extern "C" {
    fn write(file: i32, bytes: *const c_void, len: usize) -> isize;
}

/// Writes a line to file descriptor 2. Not with `eprintln!`: a test harness captures that until the
/// test ends, which loses the line if the process aborts, and its lock may be held by a thread that
/// waits for this one.
pub(crate) fn print_line(line: &str) {
    const STDERR: i32 = 2;
    let line = format!("cuguard-sim: {line}\n");
    let mut rest = line.as_bytes();
    while !rest.is_empty() {
        // SAFETY: `rest` is valid for reads of its length.
        let written = unsafe { write(STDERR, rest.as_ptr().cast(), rest.len()) };
        match usize::try_from(written) {
            Ok(written @ 1..) => rest = &rest[written.min(rest.len())..],
            _ if Error::last_os_error().kind() == ErrorKind::Interrupted => {}
            // Standard error is closed.
            _ => return,
        }
    }
}
