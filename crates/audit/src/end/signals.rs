//! Signals that end the process, because their disposition is the default.
//!
//! The handler is installed when the process first uses the driver, and only for signals with the default disposition:
//! a program that handles or ignores a signal is left alone. `sigaction` and `signal` are exported, so that the program
//! sees the default disposition where the handler is installed, and a program that restores the default gets the handler.
//! After the report the handler restores the default and raises the signal again: the wait status is that of the signal.
//!
//! Crashes (`SIGSEGV`, `SIGBUS`, …) are not handled: memory that is being searched may be what is broken.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Reason, finish, functions, start};
use crate::search::Entered;
#[cfg(target_arch = "x86_64")]
use crate::search::is_in_system_call;

/// The signals. Each ends the process by default. `abort` raises `SIGABRT`, also for uncaught exceptions.
const SIGNALS: [c_int; 10] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGABRT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGPIPE,
    libc::SIGALRM,
    libc::SIGTERM,
    libc::SIGXCPU,
];

/// Whether [`install`] has run in this process or, before a fork, in its parent.
static INSTALLED: AtomicBool = AtomicBool::new(false);

unsafe extern "C" {
    /// The C library's own, by its other name.
    #[link_name = "__sigaction"]
    fn real_sigaction(
        signal: c_int,
        action: *const libc::sigaction,
        old: *mut libc::sigaction,
    ) -> c_int;
}

fn action(handler: libc::sighandler_t, flags: c_int) -> libc::sigaction {
    // SAFETY: plain data, for which zero is valid: the mask is then empty.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    action
}

fn own_action() -> libc::sigaction {
    // On the alternate stack, as programs in Go require.
    action(
        handler as *const () as usize,
        libc::SA_ONSTACK | libc::SA_SIGINFO,
    )
}

fn is_own(action: &libc::sigaction) -> bool {
    action.sa_sigaction == handler as *const () as usize
}

/// Installs the handler for signals with the default disposition.
pub(super) fn install() {
    // The first process of a PID namespace does not end by a signal with the default disposition.
    if start::process() == 1 {
        return;
    }
    INSTALLED.store(true, Ordering::Release);
    for signal in SIGNALS {
        let mut old = action(libc::SIG_DFL, 0);
        // SAFETY: a valid action is written to.
        let code = unsafe { real_sigaction(signal, std::ptr::null(), &mut old) };
        if code == 0 && old.sa_sigaction == libc::SIG_DFL {
            // SAFETY: the handler is async-signal-safe.
            unsafe { real_sigaction(signal, &own_action(), std::ptr::null_mut()) };
        }
    }
}

extern "C" fn handler(signal: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    let _entered = Entered::here();
    // SAFETY: the system passes a valid structure.
    unsafe { forget_remains(context.cast()) };
    finish(Reason::Signal(signal));
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

/// Clears the vector registers in the frame that the kernel has put on the stack, if the signal interrupted a system call.
/// They hold remains, maybe of addresses, and the stack is searched. A function that returns may have changed them.
///
/// # Safety
///
/// The context of a signal handler.
#[cfg(target_arch = "x86_64")]
unsafe fn forget_remains(context: *mut libc::ucontext_t) {
    /// Where in the area that the kernel saves the program has its numbers, of 0 to 15 and of others.
    const VECTORS: std::ops::Range<usize> = 160..416;
    const EXTENDED: usize = 576;
    /// Says that there are others, and how large the area is.
    const MAGIC: (usize, u32) = (464, 0x4650_5853);
    const SIZE: usize = 480;
    // SAFETY: as the caller guarantees. The area has at least 512 bytes, and as many as it says if the number is there.
    unsafe {
        let Some(context) = context.as_ref() else {
            return;
        };
        let area = context.uc_mcontext.fpregs.cast::<u8>();
        if area.is_null() || !is_in_system_call(context) {
            return;
        }
        area.add(VECTORS.start).write_bytes(0, VECTORS.len());
        if area.add(MAGIC.0).cast::<u32>().read_unaligned() == MAGIC.1 {
            let size = area.add(SIZE).cast::<u32>().read_unaligned() as usize;
            area.add(EXTENDED)
                .write_bytes(0, size.saturating_sub(EXTENDED));
        }
    }
}

/// Nothing is cleared on this architecture.
///
/// # Safety
///
/// None.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn forget_remains(_: *mut libc::ucontext_t) {}

/// Whether the handler stands for the default disposition of a signal, in this process.
fn stands_for_default(signal: c_int) -> bool {
    INSTALLED.load(Ordering::Acquire) && SIGNALS.contains(&signal) && start::is_own_process()
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
    if code == 0
        && let Some(old) = unsafe { old.as_mut() }
        && is_own(old)
    {
        *old = action(libc::SIG_DFL, 0);
    }
    code
}

/// Changes the disposition of a signal, as the C library's function, and hides the handler.
///
/// # Safety
///
/// As for the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C" fn signal(signal: c_int, new: libc::sighandler_t) -> libc::sighandler_t {
    let new = match new == libc::SIG_DFL && stands_for_default(signal) {
        true => own_action().sa_sigaction,
        false => new,
    };
    // SAFETY: as for the caller.
    let old = unsafe { functions::real_signal(signal, new) };
    match old == own_action().sa_sigaction {
        true => libc::SIG_DFL,
        false => old,
    }
}
