//! The library's constructor, and what it keeps of the start of the process.

use std::ffi::{OsString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use super::{Reason, finish, forked, functions, run_folder, state};
use crate::search::{Caller, Entered, entry_point};
use crate::{real, stderr};

/// What the process had when it started. The program may change its environment, its folder and its descriptors.
#[derive(Debug, Default)]
pub(crate) struct Start {
    /// `LEAK_REPORT`.
    pub(crate) words: Option<OsString>,
    /// The current folder, if a word names a file relative to it.
    pub(crate) folder: Option<PathBuf>,
    /// The folder in which `cuguard run` collects records.
    pub(crate) run_folder: Option<PathBuf>,
    /// Whether `LEAK_REPORT` is that of `cuguard run`, which applies the exit code in it. Other words, of a script perhaps, ask for
    /// an exit code of this process.
    pub(crate) has_run_words: bool,
    /// How long a report may take, in seconds.
    pub(crate) limit: Option<u64>,
}

static START: OnceLock<Start> = OnceLock::new();

/// The process that this memory belongs to: another one with the same memory is a child of `vfork` or `clone`.
static OWNER: AtomicI32 = AtomicI32::new(0);

/// What the process had when it started.
pub(crate) fn start() -> &'static Start {
    START.get_or_init(Start::default)
}

/// Whether this process is the one that the constructor, or the handler of `fork`, ran in. Async-signal-safe.
pub(crate) fn is_own_process() -> bool {
    OWNER.load(Ordering::Relaxed) == process()
}

/// Whether the constructor has run, in this process or in one that it was forked of.
pub(super) fn is_started() -> bool {
    OWNER.load(Ordering::Relaxed) != 0
}

/// The process id.
pub(crate) fn process() -> i32 {
    // SAFETY: always succeeds.
    unsafe { libc::getpid() }
}

/// The main thread, by its C library's name: the one that the constructor ran on.
static MAIN_THREAD: AtomicU64 = AtomicU64::new(0);

/// Whether this is the main thread.
pub(super) fn is_main_thread(thread: libc::pthread_t) -> bool {
    MAIN_THREAD.load(Ordering::Relaxed) == thread
}

/// This process owns the memory from now on.
pub(super) fn own() {
    OWNER.store(process(), Ordering::Relaxed);
    crate::cancel::own(process());
}

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
    own();
    state::begin();
    crate::thread_end::prepare();
    // SAFETY: always succeeds.
    MAIN_THREAD.store(unsafe { libc::pthread_self() }, Ordering::Relaxed);
    let words = variable(c"LEAK_REPORT");
    let names_file = words.as_ref().is_some_and(|words| {
        let words = words.to_string_lossy();
        words.contains("file") || words.contains("suppress")
    });
    let limit = variable(c"CUGUARD_REPORT_LIMIT");
    let limit = limit.and_then(|seconds| seconds.to_str()?.trim().parse().ok());
    let run_words = variable(c"CUGUARD_RUN_REPORT");
    let _ = START.set(Start {
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
    run_folder::note_start();
}

unsafe extern "C" {
    pub(super) fn __cxa_atexit(
        function: unsafe extern "C" fn(),
        argument: *mut c_void,
        library: *mut c_void,
    ) -> c_int;
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
        super::output::replace_exit_code(!is_quick);
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
