//! The beginning of the exit.
//!
//! The report is made last, when the program's exit handlers and all destructors have run. Two things must happen first:
//!
//! - The search. A destructor frees the container that has the addresses, and the runtime's frees its tables: what was
//!   reachable when the exit began would be lost at its end.
//! - From then on, a context that is destroyed takes nothing with it: the CUDA runtime releases the primary context in its
//!   exit handler, with all that the program has not freed.
//!
//! Exit handlers run in the reverse order of their registration. This one is registered at the first call of the driver,
//! after those of the runtime, which are registered when it is loaded.

use std::ffi::c_void;

use super::{Reason, finish, start};
use crate::search::Entered;
use crate::state::contexts;

/// The exit begins: what is alive now is searched for.
pub(super) fn begin() {
    finish(Reason::ExitBegins);
}

extern "C" fn at_exit_begin(_: *mut c_void) {
    let _entered = Entered::here();
    contexts::process_exits();
    let _ = std::panic::catch_unwind(begin);
}

/// Registers the handler.
pub(super) fn register() {
    // SAFETY: the function has the right signature and does not unwind.
    unsafe { start::__cxa_atexit(at_exit_begin, std::ptr::null_mut(), std::ptr::null_mut()) };
}
