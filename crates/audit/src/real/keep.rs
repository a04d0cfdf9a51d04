//! Libraries that stay loaded, because this library has addresses of their functions.

use std::ffi::CStr;
use std::ffi::CString;

use cuguard_sync::own_thread;

/// Counts this library as one more user of a library that is loaded. Returns false if it is not any more. Waits for the
/// dynamic linker's lock.
pub(super) fn keep(path: &CStr) -> bool {
    let flags = libc::RTLD_NOLOAD | libc::RTLD_LAZY;
    // SAFETY: a C string; the library is loaded already, so no initializer runs.
    let handle = unsafe { libc::dlopen(path.as_ptr(), flags) };
    !handle.is_null()
}

/// The same on another thread, which then calls `done`: the calling one may be waited for by a thread that has the lock. Returns
/// whether there is such a thread.
pub(crate) fn keep_soon(path: CString, done: impl FnOnce(bool) + Send + 'static) -> bool {
    // The thread inherits this mask: the program's signals are for the program's threads.
    // SAFETY: sets are plain data, for which zero is valid, and both can be written to.
    let before = unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        before
    };
    let thread = std::thread::Builder::new().name("cuguard-keep".to_owned());
    let spawned = thread.spawn(move || {
        let _own = own_thread::enter();
        done(keep(&path));
    });
    // SAFETY: a set that the system returned.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut()) };
    spawned.is_ok()
}
