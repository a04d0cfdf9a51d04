//! The end of the process by a signal.

use std::ffi::c_int;

unsafe extern "C" {
    /// The C library's own, by its other name.
    #[link_name = "__sigaction"]
    pub(super) fn real_sigaction(
        signal: c_int,
        action: *const libc::sigaction,
        old: *mut libc::sigaction,
    ) -> c_int;
}

/// An action with an empty mask.
pub(super) fn action(handler: libc::sighandler_t, flags: c_int) -> libc::sigaction {
    // SAFETY: plain data, for which zero is valid: the mask is then empty.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    action
}

/// Ends the process by the signal, with its default disposition.
pub(super) fn die(signal: c_int) {
    // SAFETY: all calls are async-signal-safe, and the set is initialized.
    unsafe {
        real_sigaction(signal, &action(libc::SIG_DFL, 0), std::ptr::null_mut());
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::syscall(
            libc::SYS_tgkill,
            libc::getpid(),
            libc::syscall(libc::SYS_gettid),
            signal,
        );
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
    }
}
