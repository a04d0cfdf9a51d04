//! The beginning of the exit.
//!
//! The report is made last, when the program's exit handlers and all destructors have run. Two things must happen first:
//!
//! - The search. A destructor frees the container that has the addresses, and the runtime's frees its tables: what was
//!   reachable when the exit began would be lost at its end.
//! - From then on, a context that is destroyed takes nothing with it: the CUDA runtime releases the primary context in its
//!   exit handler, with all that the program has not freed.
//!
//! The exit begins when `main` returns or `exit` is called: before destructors of thread-local variables, and before exit
//! handlers, some of which are registered while the program runs. `exit` is exported. The return from `main` calls it inside of
//! the C library, which no exported function sees, so `__libc_start_main` is exported too: it is given a `main` that calls the
//! program's. An exit handler that is registered at the first call of the driver serves a program that was started in another
//! way.

use std::ffi::{c_char, c_int, c_void};
use std::mem::transmute;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::functions::{self, __cxa_atexit, Real};
use super::reporter::finish;
use super::signals;
use crate::cancel;
use crate::process::{Reason, is_used};
use crate::search::{Caller, Entered, Mark, entry_point};
use crate::state::contexts;

/// The exit begins: what is alive now is searched for.
pub(super) fn begin() {
    finish(Reason::ExitBegins);
}

/// The exit of the process begins.
fn begin_process(_entered: Entered) {
    contexts::process_exits();
    signals::exit_begins();
    let _ = std::panic::catch_unwind(begin);
}

unsafe extern "C" fn before_handlers(caller: &Caller, _: u32) -> *const c_void {
    begin_process(Entered::by(caller));
    functions::nothing as *const c_void
}

entry_point! {
    /// The exit handler.
    at_exit_begin, before_handlers, 0
}

static EXIT: Real = Real::new(c"exit");
static START_MAIN: Real = Real::new(c"__libc_start_main");

type Main = unsafe extern "C-unwind" fn(c_int, *mut *mut c_char, *mut *mut c_char) -> c_int;
type StartMain = unsafe extern "C-unwind" fn(
    Main,
    c_int,
    *mut *mut c_char,
    *mut c_void,
    *mut c_void,
    *mut c_void,
    *mut c_void,
) -> c_int;

unsafe extern "C" fn before_exit(caller: &Caller, _: u32) -> *const c_void {
    if is_used() {
        begin_process(Entered::by(caller));
    }
    EXIT.get()
}

entry_point! {
    /// Ends the process. Exit handlers may throw through it, as through the C library's, so this must not be on the stack.
    #[cfg_attr(not(test), unsafe(no_mangle))]
    exit, before_exit, 0
}

/// The program's `main`.
static MAIN: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Calls the program's `main`. Exceptions pass, because nothing here has a destructor.
unsafe extern "C-unwind" fn main_then_exit(
    count: c_int,
    arguments: *mut *mut c_char,
    environment: *mut *mut c_char,
) -> c_int {
    // SAFETY: `__libc_start_main` stored it.
    let main = unsafe { transmute::<*mut c_void, Main>(MAIN.load(Ordering::Relaxed)) };
    // What is below were frames of `main` when it has returned.
    let mark = Mark::here();
    // SAFETY: the arguments are the C library's.
    let status = unsafe { main(count, arguments, environment) };
    if is_used() {
        let before = cancel::disable();
        begin_process(Entered::behind(mark));
        cancel::restore(before);
    }
    status
}

/// Starts the program: called by its first function, before anything of its own runs.
#[cfg_attr(not(test), unsafe(no_mangle))]
unsafe extern "C-unwind" fn __libc_start_main(
    main: Main,
    count: c_int,
    arguments: *mut *mut c_char,
    init: *mut c_void,
    fini: *mut c_void,
    loader_fini: *mut c_void,
    stack_end: *mut c_void,
) -> c_int {
    MAIN.store(main as *mut c_void, Ordering::Relaxed);
    // SAFETY: the C library has the function, with this signature; all else is passed on.
    unsafe {
        let start = transmute::<*mut c_void, StartMain>(START_MAIN.get());
        start(
            main_then_exit,
            count,
            arguments,
            init,
            fini,
            loader_fini,
            stack_end,
        )
    }
}

/// Registers the handler.
pub(super) fn register() {
    // SAFETY: the function has the right signature and does not unwind.
    unsafe { __cxa_atexit(at_exit_begin, std::ptr::null_mut(), std::ptr::null_mut()) };
}
