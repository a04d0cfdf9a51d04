//! Signals that end the process, because their disposition is the default.
//!
//! The handler is installed when the process first uses the driver, and only for signals with the default disposition:
//! a program that handles or ignores a signal is left alone. `sigaction`, `signal` and the like are exported, so that the program
//! sees the default disposition where the handler is installed, and a program that restores the default gets the handler.
//! After the report the default is restored and the signal raised again: the wait status is that of the signal.
//!
//! The handler waits for the report, unless the thread may hold a lock that the report needs: in a recorded call, or in the
//! arena, it returns, and the thread waits at the end of the call. The reporting thread then ends the process.
//!
//! One of them, `SIGUSR2` unless `dump-signal=` names another, requests a report of the running process instead, as long as there is
//! a server for those.
//!
//! Crashes (`SIGSEGV`, `SIGBUS`, …) are not handled: memory that is being searched may be what is broken.

use std::ffi::{c_int, c_void};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

use super::call::is_inside;
use super::death::{action, die, real_sigaction};
use super::reporter::finish;
use super::{deadline, functions, reporter};
use crate::output;
use crate::process::{Reason, facts, is_used};
use crate::search::{self, Entered, alternate_stack};
use crate::{cancel, heap};

/// The signals that end the process by default, but for real-time ones. `abort` raises `SIGABRT`, also for uncaught exceptions.
const SIGNALS: [c_int; 16] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGABRT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGPIPE,
    libc::SIGALRM,
    libc::SIGTERM,
    libc::SIGSTKFLT,
    libc::SIGXCPU,
    libc::SIGXFSZ,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
    libc::SIGPWR,
];

/// The real-time signals, which end the process by default too. Those below belong to the C library.
fn real_time() -> RangeInclusive<c_int> {
    libc::SIGRTMIN()..=libc::SIGRTMAX()
}

/// Whether [`install`] has run in this process or, before a fork, in its parent.
static INSTALLED: AtomicBool = AtomicBool::new(false);

fn own_action() -> libc::sigaction {
    let mut action = action(
        handler as *const () as usize,
        alternate_stack::flag() | libc::SA_SIGINFO | libc::SA_RESTART,
    );
    // The signal by which the search stops threads is one of these. A second signal frame, with its vector registers, does not
    // fit on the alternate stack that the standard library of Rust creates. The search needs none: the thread's state is known
    // by its `Entered`.
    for signal in real_time() {
        // SAFETY: the set is initialized.
        unsafe { libc::sigaddset(&mut action.sa_mask, signal) };
    }
    action
}

fn is_own(action: &libc::sigaction) -> bool {
    action.sa_sigaction == handler as *const () as usize
}

/// Installs the handler for signals with the default disposition.
pub(super) fn install() {
    // The first process of a PID namespace does not end by a signal with the default disposition.
    if facts::process() == 1 {
        return;
    }
    INSTALLED.store(true, Ordering::Release);
    for signal in SIGNALS.into_iter().chain(real_time()) {
        let mut old = action(libc::SIG_DFL, 0);
        // SAFETY: a valid action is written to.
        let code = unsafe { real_sigaction(signal, std::ptr::null(), &mut old) };
        if code == 0 && old.sa_sigaction == libc::SIG_DFL {
            // SAFETY: the handler is async-signal-safe.
            unsafe { real_sigaction(signal, &own_action(), std::ptr::null_mut()) };
        }
    }
}

/// The exit begins, on the calling thread: installs the handler with other flags where it now needs them.
pub(super) fn exit_begins() {
    if !alternate_stack::exit_begins() || !INSTALLED.load(Ordering::Acquire) {
        return;
    }
    for signal in SIGNALS.into_iter().chain(real_time()) {
        let mut old = action(libc::SIG_DFL, 0);
        // SAFETY: a valid action is written to; the handler is async-signal-safe.
        unsafe {
            if real_sigaction(signal, std::ptr::null(), &mut old) == 0 && is_own(&old) {
                real_sigaction(signal, &own_action(), std::ptr::null_mut());
            }
        }
    }
}

/// How long a thread waits in the handler for a report, after a signal from outside. It may hold a lock of the program or the C
/// library that the report needs, and then continues.
const PATIENCE: Duration = Duration::from_secs(5);

/// The signal that requests a report of the running process, or 0.
static DUMP: AtomicI32 = AtomicI32::new(0);

/// Sets the signal that requests a report of the running process, instead of its end; 0 for none.
pub(super) fn set_dump_signal(signal: c_int) {
    DUMP.store(signal, Ordering::Release);
}

/// Without destructors: see [`cancel`].
extern "C-unwind" fn handler(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let before = cancel::disable_unless_shared();
    handle(signal, info, context);
    cancel::restore(before);
}

#[inline(never)]
fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    if signal == DUMP.load(Ordering::Acquire) && is_used() {
        // SAFETY: the thread's own variable.
        let errno = unsafe { *libc::__errno_location() };
        let is_requested = cuguard_live::request_report();
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
        if is_requested {
            return;
        }
    }
    if !is_used() {
        return die(signal);
    }
    // SAFETY: the system passes a valid structure.
    let info = unsafe { &*info };
    if deadline::is_over(info) {
        let seconds = reporter::report_limit().as_secs();
        output::print_why(format_args!("it was not complete after {seconds} s"));
        return die(signal);
    }
    // Not before: a child of `vfork` shares this library's variables, and ends here without the drop.
    // SAFETY: the context of this handler.
    let _entered = Entered::by_signal(unsafe { &*context.cast::<libc::ucontext_t>() });
    search::process_ends(true);
    // SAFETY: it has the sender if a process sent the signal.
    let is_own = info.si_code <= 0 && unsafe { info.si_pid() } == facts::process();
    let is_busy = is_inside() || heap::is_inside();
    // Without a thread that makes the report there is nothing to wait for.
    if signal == libc::SIGABRT || (is_own && !is_busy) || !reporter::is_launched() {
        // `abort` and `raise` do not return.
        finish(Reason::Signal(signal));
        return die(signal);
    }
    reporter::request_death(signal);
    deadline::start(signal, reporter::report_limit());
    if !is_busy {
        let most = PATIENCE.min(reporter::report_limit());
        reporter::wait_for_death(Some(most));
    }
}

/// Waits for the report and for the end of the process, and ends it if that takes too long.
#[cold]
pub(super) fn wait_and_die(signal: c_int) {
    reporter::wait_for_death(None);
    die(signal);
}

/// Whether the handler stands for the default disposition of a signal, in this process.
fn stands_for_default(signal: c_int) -> bool {
    let is_listed = SIGNALS.contains(&signal) || real_time().contains(&signal);
    is_listed && INSTALLED.load(Ordering::Acquire) && facts::is_own_process()
}

/// Changes the disposition of a signal, as the C library's function, and hides the handler.
///
/// # Safety
///
/// As for the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: null or valid, says the caller.
    let is_default = unsafe { new.as_ref() }.is_some_and(|new| new.sa_sigaction == libc::SIG_DFL);
    let own = own_action();
    let new = match is_default && stands_for_default(signal) {
        true => &raw const own,
        false => new,
    };
    // SAFETY: as for the caller.
    let code = unsafe { real_sigaction(signal, new, old) };
    // SAFETY: null, or written by the call.
    if let Some(old) = unsafe { old.as_mut() }
        && code == 0
        && is_own(old)
    {
        *old = action(libc::SIG_DFL, 0);
    }
    code
}

/// Installs the handler where a program restores the default. Not by the C library's function for that, which would install it
/// without a `siginfo_t` and an alternate stack. Returns the disposition before, or `SIG_ERR`.
fn restore_default(signal: c_int) -> libc::sighandler_t {
    let mut old = action(libc::SIG_DFL, 0);
    // SAFETY: the handler is async-signal-safe, and a valid action is written to.
    match unsafe { real_sigaction(signal, &own_action(), &mut old) } {
        0 => hide(old.sa_sigaction),
        _ => libc::SIG_ERR,
    }
}

/// What the program sees of a disposition.
fn hide(disposition: libc::sighandler_t) -> libc::sighandler_t {
    match disposition == handler as *const () as usize {
        true => libc::SIG_DFL,
        false => disposition,
    }
}

/// Exports functions that change the disposition of a signal.
macro_rules! exported {
    ($($name:ident, $real:ident;)*) => {$(
        /// Changes the disposition of a signal, as the C library's function, and hides the handler.
        ///
        /// # Safety
        ///
        /// As for the C library's function.
        #[cfg_attr(not(test), unsafe(no_mangle))]
        unsafe extern "C" fn $name(signal: c_int, new: libc::sighandler_t) -> libc::sighandler_t {
            match new == libc::SIG_DFL && stands_for_default(signal) {
                true => restore_default(signal),
                // SAFETY: as for the caller.
                false => hide(unsafe { functions::set_handler(&functions::$real, signal, new) }),
            }
        }
    )*};
}

exported! {
    signal, SIGNAL;
    ssignal, SSIGNAL;
    sysv_signal, SYSV_SIGNAL;
    __sysv_signal, SYSV_SIGNAL;
}

/// `SIG_HOLD`
const HOLD: libc::sighandler_t = 2;

/// Changes the disposition of a signal, or blocks it, as the C library's function, and hides the handler.
///
/// # Safety
///
/// As for the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn sigset(signal: c_int, new: libc::sighandler_t) -> libc::sighandler_t {
    if new != libc::SIG_DFL || !stands_for_default(signal) {
        // SAFETY: as for the caller.
        return hide(unsafe { functions::set_handler(&functions::SIGSET, signal, new) });
    }
    let old = restore_default(signal);
    // SAFETY: sets are plain data, for which zero is valid, and both can be written to.
    unsafe {
        let (mut set, mut before): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, signal);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, &mut before);
        match old != libc::SIG_ERR && libc::sigismember(&before, signal) == 1 {
            true => HOLD,
            false => old,
        }
    }
}
