//! Whether the signal handlers of this library run on the alternate stacks of threads.
//!
//! They do, because the runtime of Go requires it: its own stacks have no room for a signal.
//!
//! They do not once the process exits on another thread than the main one. The standard library of Rust unmaps the main thread's
//! alternate stack before it calls `exit`, on whichever thread that is, and the kernel still has its address: a signal there would
//! end the process, or overwrite what was mapped at the address since. What has used alternate stacks then counts as the
//! program's, because they may be gone: remains of earlier handlers there can make something lost appear reachable.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::heap::threads::thread_id;

/// Whether that of the main thread may be unmapped.
static MAY_BE_GONE: AtomicBool = AtomicBool::new(false);

/// The exit of the process begins, on the calling thread. Returns whether [`flag`] has changed.
pub(crate) fn exit_begins() -> bool {
    // SAFETY: no requirements.
    let is_main = thread_id() == unsafe { libc::getpid() };
    !is_main && !has_go() && !MAY_BE_GONE.swap(true, Ordering::Relaxed)
}

/// `SA_ONSTACK`, or zero. Async-signal-safe.
pub(crate) fn flag() -> c_int {
    match MAY_BE_GONE.load(Ordering::Relaxed) {
        true => 0,
        false => libc::SA_ONSTACK,
    }
}

/// Whether the runtime of Go is in the process, also in a library. It interrupts its threads by `SIGURG`, which other programs
/// have no handler for.
fn has_go() -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: zero is a valid `sigaction`, which the call writes to.
    let action = unsafe {
        libc::sigaction(libc::SIGURG, ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_flags & libc::SA_ONSTACK != 0
        && ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction)
}
