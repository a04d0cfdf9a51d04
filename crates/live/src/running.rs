//! The server of this process, as a signal handler and a forked child see it.

use std::sync::atomic::{AtomicI32, Ordering};

use cuguard_sync::process;

use crate::descriptor::Descriptor;

/// The process that the server runs in; 0 without one.
pub(crate) static OWNER: AtomicI32 = AtomicI32::new(0);
/// The socket that the server listens at.
pub(crate) static LISTENER: Descriptor = Descriptor::none();
/// The end of the pipe that the signal handler writes to.
pub(crate) static WAKE: Descriptor = Descriptor::none();
/// The end that the server reads.
pub(crate) static WOKEN: Descriptor = Descriptor::none();

/// The most connections at once. Each has a descriptor of the program.
pub(crate) const MOST_CLIENTS: usize = 8;
/// The connections of the server's clients.
pub(crate) static CLIENTS: [Descriptor; MOST_CLIENTS] =
    [const { Descriptor::none() }; MOST_CLIENTS];

pub(crate) fn own_process() -> i32 {
    // SAFETY: always succeeds.
    unsafe { libc::getpid() }
}

/// Whether a server was started in this process. It may have ended since, because the program closed its descriptors. Async-signal-safe.
#[must_use]
pub fn is_running() -> bool {
    let owner = OWNER.load(Ordering::Acquire);
    owner != 0 && owner == own_process() && !process::is_forked()
}

/// Has the server write a report where the settings say. Returns whether a server was started. Async-signal-safe.
pub fn request_report() -> bool {
    if !is_running() {
        return false;
    }
    if let Some(pipe) = WAKE.get() {
        // SAFETY: one byte that can be read. A full pipe has requests enough.
        unsafe { libc::write(pipe, c"!".as_ptr().cast(), 1) };
    }
    true
}

/// In a forked child, where the thread does not exist: a client must not reach the parent's socket through the child, nor wait
/// for the end of a connection until the child ends.
pub(crate) extern "C" fn in_child() {
    OWNER.store(0, Ordering::Release);
    LISTENER.close();
    WAKE.close();
    WOKEN.close();
    CLIENTS.iter().for_each(Descriptor::close);
}
