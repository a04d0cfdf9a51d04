//! The beginning of the interpreter's exit, when its objects still have the addresses that the program holds.
//!
//! A callback of the module `atexit`, registered as late as possible, runs before those of the program and of libraries. To
//! register it takes the interpreter's lock, which the thread that first calls the driver may not have: the interpreter is
//! asked to call a function as soon as its main thread gets there (`Py_AddPendingCall`).

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::api::{Api, Method, Object};
use crate::search::Entered;

/// `METH_NOARGS`
const WITHOUT_ARGUMENTS: c_int = 4;

static METHOD: Method = Method {
    name: c"cuguard_exit_begins".as_ptr(),
    function: at_exit,
    flags: WITHOUT_ARGUMENTS,
    documentation: ptr::null(),
};

/// What is called when the exit begins.
static BEGIN: OnceLock<fn()> = OnceLock::new();

/// Sets what is called when the interpreter's exit begins.
pub(crate) fn call_at_exit(begin: fn()) {
    let _ = BEGIN.set(begin);
}

static REGISTERED: AtomicBool = AtomicBool::new(false);

/// Has the callback registered, once.
pub(super) fn register(api: &Api) {
    // Read first: other threads read it too.
    if !REGISTERED.load(Ordering::Relaxed) && !REGISTERED.swap(true, Ordering::Relaxed) {
        // SAFETY: may be called without the lock. A full queue is no error: the search is made later then.
        unsafe { (api.add_pending)(pending, ptr::null_mut()) };
    }
}

/// Called by the interpreter's main thread, with the lock.
unsafe extern "C" fn pending(_: *mut c_void) -> c_int {
    if let Some(api) = Api::get() {
        // SAFETY: the thread has the lock.
        unsafe { api.register_at_exit(&METHOD) };
    }
    0
}

/// The callback.
unsafe extern "C" fn at_exit(_: Object, _: Object) -> Object {
    let _entered = Entered::here();
    if let Some(begin) = BEGIN.get() {
        let _ = std::panic::catch_unwind(begin);
    }
    // SAFETY: the thread has the lock.
    Api::get().map_or(ptr::null_mut(), |api| unsafe { api.none() })
}
