//! Waiting for a word that another thread changes. Async-signal-safe.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Waits while the word has this value, at most so long. May return early.
pub(super) fn wait(word: &'static AtomicU32, value: u32, most: Option<Duration>) {
    let time = most.map(|most| libc::timespec {
        tv_sec: most.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: most.subsec_nanos().into(),
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word lives as long as the process, and the time is null or valid.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, time) };
}

/// Wakes all who wait for it.
pub(super) fn wake(word: &'static AtomicU32) {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word lives as long as the process.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, i32::MAX) };
}
