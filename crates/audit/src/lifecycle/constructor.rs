//! The library's constructor.

use std::ffi::{OsString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use super::functions::__cxa_atexit;
use super::reporter::finish;
use super::{forked, functions};
use crate::output::{replace_exit_code, run_folder};
use crate::process::facts::{self, Start};
use crate::process::{Reason, driver_use};
use crate::search::{Caller, Entered, entry_point};
use crate::{real, stderr};

/// A variable, read without the standard library's lock: the constructor may run while others hold it.
fn variable(name: &std::ffi::CStr) -> Option<OsString> {
    // SAFETY: the name ends in a null byte. The program's own code does not run yet, so nothing changes the environment.
    let value = unsafe { libc::getenv(name.as_ptr()) };
    if value.is_null() {
        return None;
    }
    // SAFETY: `getenv` returned a string.
    let value = unsafe { std::ffi::CStr::from_ptr(value) };
    Some(OsString::from_vec(value.to_bytes().to_vec()))
}

fn construct() {
    facts::own();
    driver_use::begin();
    crate::thread_end::prepare();
    let words = variable(c"LEAK_REPORT");
    let names_file = words.as_ref().is_some_and(|words| {
        let words = words.to_string_lossy();
        words.contains("file") || words.contains("suppress")
    });
    let limit = variable(c"CUGUARD_REPORT_LIMIT");
    let limit = limit.and_then(|seconds| seconds.to_str()?.trim().parse().ok());
    let run_words = variable(c"CUGUARD_RUN_REPORT");
    facts::note(Start {
        has_run_words: run_words.is_some() && run_words == words,
        words,
        folder: names_file.then(|| std::env::current_dir().ok()).flatten(),
        run_folder: variable(c"CUGUARD_RUN").map(PathBuf::from),
        limit,
    });
    if let Some(folder) = variable(c"CUGUARD_RUN_SIMULATION") {
        real::expect_simulation(folder);
    }
    stderr::note_first();
    functions::resolve();
    let runner = variable(c"CUGUARD_RUNNER");
    run_folder::note_start(runner.as_ref().and_then(|process| process.to_str()));
}

unsafe extern "C" {
    fn __cxa_at_quick_exit(function: unsafe extern "C" fn(), library: *mut c_void) -> c_int;
}

unsafe extern "C" fn at_end(caller: &Caller, is_quick: u32) -> *const c_void {
    let _entered = Entered::by(caller);
    let _ = std::panic::catch_unwind(|| {
        let is_quick = is_quick != 0;
        finish(if is_quick {
            Reason::QuickExit
        } else {
            Reason::Exit
        });
        replace_exit_code(!is_quick);
    });
    functions::nothing as *const c_void
}

entry_point! {
    /// The handler of `exit`.
    at_exit, at_end, 0
}
entry_point! {
    /// The handler of `quick_exit`.
    at_quick_exit, at_end, 1
}

/// Runs when the library is loaded, before `main`.
extern "C" fn constructor(_: c_int, _: *mut *mut c_char, _: *mut *mut c_char) {
    let _ = std::panic::catch_unwind(construct);
    // Without a library, so that the handlers are not run with this library's destructors: they stay the first that
    // were registered, before the loader's own, and run after the destructors of all libraries.
    // SAFETY: the functions have the right signatures and do not unwind.
    unsafe {
        __cxa_atexit(at_exit, std::ptr::null_mut(), std::ptr::null_mut());
        __cxa_at_quick_exit(at_quick_exit, std::ptr::null_mut());
        libc::pthread_atfork(None, None, Some(forked::in_child));
    }
}

// Not in this crate's unit tests, where this would be a part of the test program.
#[cfg_attr(not(test), used, unsafe(link_section = ".init_array"))]
static CONSTRUCTOR: extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char) = constructor;
