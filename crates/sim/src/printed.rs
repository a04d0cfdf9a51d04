//! What kernels print. As on a real device, it is kept until the program synchronizes with the device or launches another
//! kernel.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::process::lock_unless_forked;

static KEPT: Mutex<Vec<u8>> = Mutex::new(Vec::new());
/// Whether there is any, so that calls take no lock otherwise.
static ANY: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    /// The stream of the C library: a program in C or Python may have written to it before.
    static stdout: *mut libc::FILE;
}

/// Keeps the output of a kernel that has completed.
pub(crate) fn add(text: &str) {
    if !text.is_empty()
        && let Some(mut kept) = lock_unless_forked(&KEPT)
    {
        kept.extend_from_slice(text.as_bytes());
        ANY.store(true, Ordering::Release);
    }
}

/// Writes what is kept to standard output.
pub(crate) fn flush() {
    if !ANY.load(Ordering::Acquire) {
        return;
    }
    let Some(mut kept) = lock_unless_forked(&KEPT) else {
        return;
    };
    ANY.store(false, Ordering::Release);
    // SAFETY: the bytes are valid, and the C library's stream is open until the process exits; a program that closes it
    // must not use a device that prints.
    unsafe {
        libc::fwrite(kept.as_ptr().cast(), 1, kept.len(), stdout);
        libc::fflush(stdout);
    }
    kept.clear();
}
