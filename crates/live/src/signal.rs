//! The signal that requests a report.
//!
//! The handler is installed only where the disposition is the default, which would end the process. A program that handles or
//! ignores the signal is left alone, and one that installs its own handler later replaces this one: its handler runs, and there are
//! no reports by signal. Where all threads block the signal, as for `signalfd`, it stays pending for the program.

use std::ffi::c_int;
use std::sync::atomic::{AtomicI32, Ordering};

use cuguard_report::DumpSignal;

use crate::running;

/// The process that installed the handler.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// The number of a signal, if there is one.
///
/// ```
/// use cuguard_report::DumpSignal;
///
/// assert_eq!(cuguard_live::number(DumpSignal::Usr2), Some(libc::SIGUSR2));
/// assert_eq!(cuguard_live::number(DumpSignal::None), None);
/// ```
#[must_use]
pub fn number(signal: DumpSignal) -> Option<c_int> {
    match signal {
        DumpSignal::None => None,
        DumpSignal::Usr1 => Some(libc::SIGUSR1),
        DumpSignal::Usr2 => Some(libc::SIGUSR2),
        DumpSignal::Hup => Some(libc::SIGHUP),
        DumpSignal::Io => Some(libc::SIGIO),
        DumpSignal::Pwr => Some(libc::SIGPWR),
    }
}

/// Installs the handler, unless the program has one or ignores the signal.
pub(crate) fn install(signal: c_int) {
    // SAFETY: plain data, for which zero is valid; written by the call.
    let mut old: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a valid action is written to.
    let code = unsafe { libc::sigaction(signal, std::ptr::null(), &mut old) };
    if code != 0 || old.sa_sigaction != libc::SIG_DFL {
        return;
    }
    // SAFETY: always succeeds.
    OWNER.store(unsafe { libc::getpid() }, Ordering::Release);
    // SAFETY: as above; the mask is empty.
    let mut new: libc::sigaction = unsafe { std::mem::zeroed() };
    new.sa_sigaction = handler as *const () as usize;
    // On the alternate stack, as programs in Go require.
    new.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
    // SAFETY: the handler is async-signal-safe.
    unsafe { libc::sigaction(signal, &new, std::ptr::null_mut()) };
}

extern "C" fn handler(signal: c_int) {
    // SAFETY: the thread's own variable, and a call that always succeeds.
    let (errno, process) = unsafe { (*libc::__errno_location(), libc::getpid()) };
    if OWNER.load(Ordering::Acquire) == process {
        running::request_report();
    } else {
        // A forked child: as without this library.
        die(signal);
    }
    // SAFETY: the thread's own variable.
    unsafe { *libc::__errno_location() = errno };
}

/// Ends the process by the signal, with its default disposition.
fn die(signal: c_int) {
    // SAFETY: all calls are async-signal-safe, and plain data is valid as zero.
    unsafe {
        let mut default: libc::sigaction = std::mem::zeroed();
        default.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(signal, &default, std::ptr::null_mut());
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::raise(signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
    }
}
