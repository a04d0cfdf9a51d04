//! The threads that these libraries started, which must not keep a process alive whose own threads have ended.
//!
//! By thread id, not by name: a program may name its threads as it likes. A process can have this code more than once, in the
//! program and in the preloaded library that ends the process after `pthread_exit`. [`enter_shared`] lists a thread in both.

use std::ffi::c_int;
use std::mem::transmute;
use std::sync::atomic::{AtomicU64, Ordering};

/// More than these libraries ever start. A thread beyond that keeps the process alive.
const MOST: usize = 64;

/// Process and thread id of each, or 0. With the process id, a forked child has none of them.
static THREADS: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];

/// What the preloaded library exports: [`note`] of its copy of this code.
pub type Note = extern "C" fn(thread: c_int, begins: c_int);

/// The name of that function.
pub const NOTE: &std::ffi::CStr = c"cuguard_audit_note_thread";

fn entry(thread: c_int) -> u64 {
    // SAFETY: always succeeds.
    let process = unsafe { libc::getpid() };
    u64::from(process.cast_unsigned()) << 32 | u64::from(thread.cast_unsigned())
}

/// The calling thread, until it is dropped at the end of the thread.
#[derive(Debug)]
#[must_use]
pub struct OwnThread {
    thread: c_int,
    shared: Option<Note>,
}

/// The calling thread's number in the kernel.
///
/// ```
/// assert_ne!(cuguard_sync::own_thread::id(), 0);
/// ```
#[must_use]
pub fn id() -> c_int {
    // The C library has a function for it since 2.30; wheels are for older ones, too.
    // SAFETY: always succeeds, with a number that fits.
    unsafe { libc::syscall(libc::SYS_gettid) as c_int }
}

/// The calling thread is one of these libraries. Takes no lock.
///
/// ```
/// use cuguard_sync::own_thread;
///
/// let id = own_thread::id();
/// let own = own_thread::enter();
/// assert!(own_thread::is_own(id));
/// drop(own);
/// assert!(!own_thread::is_own(id));
/// ```
pub fn enter() -> OwnThread {
    let thread = id();
    note(thread, true);
    OwnThread {
        thread,
        shared: None,
    }
}

/// [`enter`], also for the preloaded library, if there is one. May wait for the dynamic linker.
pub fn enter_shared() -> OwnThread {
    let mut own = enter();
    // SAFETY: a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, NOTE.as_ptr()) };
    if !found.is_null() {
        // SAFETY: a function of this type has that name.
        let note = unsafe { transmute::<*mut libc::c_void, Note>(found) };
        note(own.thread, 1);
        own.shared = Some(note);
    }
    own
}

impl Drop for OwnThread {
    fn drop(&mut self) {
        note(self.thread, false);
        if let Some(note) = self.shared {
            note(self.thread, 0);
        }
    }
}

/// The thread with this id begins, or ends, as one of these libraries. Async-signal-safe.
pub fn note(thread: c_int, begins: bool) {
    let own = entry(thread);
    let replace = |old, new| {
        THREADS.iter().any(|place| {
            let replaced = place.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed);
            replaced.is_ok()
        })
    };
    match begins {
        true => is_own(thread) || replace(0, own) || replace_foreign(own),
        false => replace(own, 0),
    };
}

/// In a forked child: uses the place of a thread of its parent.
fn replace_foreign(own: u64) -> bool {
    THREADS.iter().any(|place| {
        let old = place.load(Ordering::Relaxed);
        let is_foreign = old >> 32 != own >> 32;
        is_foreign
            && place
                .compare_exchange(old, own, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    })
}

/// Whether the thread of this process with this id is one of these libraries.
#[must_use]
pub fn is_own(thread: c_int) -> bool {
    let own = entry(thread);
    THREADS
        .iter()
        .any(|place| place.load(Ordering::Acquire) == own)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_listed_once_and_until_it_ends() {
        let id = std::thread::spawn(|| {
            let id = id();
            assert!(!is_own(id));
            let own = enter();
            note(id, true);
            assert!(is_own(id));
            drop(own);
            assert!(!is_own(id));
            let _own = enter_shared();
            assert!(is_own(id));
            id
        });
        assert!(!is_own(id.join().unwrap()));
    }
}
