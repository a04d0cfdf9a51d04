//! Ends the process when a report after a signal takes too long.
//!
//! The reporting thread may wait for a lock that a thread of the program never releases. So the handler starts a timer of the
//! kernel, which sends the signal again: a signal without a handler would have ended the process at once.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Whether the timer is started. Its address is what the timer's signal carries.
static STARTED: AtomicBool = AtomicBool::new(false);

/// Has the signal sent again after this time. Only the first call counts. Async-signal-safe.
pub(super) fn start(signal: c_int, after: Duration) {
    if STARTED.swap(true, Ordering::AcqRel) {
        return;
    }
    let after = after.max(Duration::from_millis(1));
    // SAFETY: plain data, for which zero is valid.
    let (mut event, mut time): (libc::sigevent, libc::itimerspec) = unsafe { std::mem::zeroed() };
    event.sigev_notify = libc::SIGEV_SIGNAL;
    event.sigev_signo = signal;
    event.sigev_value.sival_ptr = STARTED.as_ptr().cast();
    time.it_value.tv_sec = after.as_secs().try_into().unwrap_or(libc::time_t::MAX);
    time.it_value.tv_nsec = after.subsec_nanos().into();
    let mut timer: c_int = 0;
    // Not by the C library, whose functions allocate.
    // SAFETY: the structures are valid, and the number of the timer can be written to.
    unsafe {
        let clock = libc::CLOCK_MONOTONIC;
        if libc::syscall(libc::SYS_timer_create, clock, &event, &mut timer) != 0 {
            // The next signal tries again.
            return STARTED.store(false, Ordering::Release);
        }
        let old = std::ptr::null_mut::<libc::itimerspec>();
        libc::syscall(libc::SYS_timer_settime, timer, 0, &time, old);
    }
}

/// Whether the timer has sent a signal. Async-signal-safe.
pub(super) fn is_over(info: &libc::siginfo_t) -> bool {
    // SAFETY: such a signal has a value.
    info.si_code == libc::SI_TIMER
        && unsafe { info.si_value() }.sival_ptr == STARTED.as_ptr().cast()
}

/// In a forked child, which has no timers.
pub(super) fn forget() {
    STARTED.store(false, Ordering::Relaxed);
}
