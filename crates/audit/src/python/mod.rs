//! The frames of a Python interpreter in this process, for stack traces.
//!
//! - `api` has the functions of CPython, 3.9 and later, which are found in the process; `table` has the frames as
//!   numbers.
//!
//! The public functions are called only on a thread that has the interpreter's lock. Extensions such as `ctypes.CDLL`,
//! PyTorch and CuPy release this lock around the call of the driver. Then `unlocked` or `memory` reads the frames:
//! waiting for the lock could deadlock, because the extension may hold a lock of its own that the thread with the
//! interpreter's lock waits for.
//!
//! `at_exit` notices the beginning of the interpreter's exit.
//!
//! Reading raises no exception, runs no code of the program and keeps no frame alive: a frame would keep the program's
//! tensors. The first code objects of recorded frames are never freed, so their addresses identify them. Later code
//! objects are identified by file, function and line, so that memory does not grow in a program that compiles code all
//! the time.

mod api;
mod at_exit;
mod memory;
mod table;
mod unlocked;
mod walk;

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use cuguard_report::ForeignFrame;

use self::api::{Api, Owned};
pub(crate) use self::at_exit::call_at_exit;
pub(crate) use self::table::resolve;
use crate::modules::module_frames;

static OFF: AtomicBool = AtomicBool::new(false);

/// Records no Python frames from now on.
pub(crate) fn turn_off() {
    OFF.store(true, Relaxed);
}

/// Whether there is an interpreter, and its frames are recorded. Notices the beginning of its exit also where they are not.
/// `calls` is how often the calling thread has called this.
#[inline]
pub(crate) fn is_present(calls: u32) -> bool {
    let Some(api) = Api::get().or_else(|| Api::look_for(calls)) else {
        return false;
    };
    if api.is_running() {
        at_exit::register(api);
    }
    !OFF.load(Relaxed)
}

/// Fills `frames` with the calling thread's Python frames, innermost first, as numbers for [`resolve`]. Returns the
/// native frames of the interpreter, and how many frames there are. `None` where there are none.
pub(crate) fn frames(frames: &mut [usize]) -> Option<(Range<usize>, usize)> {
    if OFF.load(Relaxed) {
        return None;
    }
    let api = Api::get()?;
    let count = match api.is_locked_here() {
        // SAFETY: the thread has the lock.
        true => unsafe { api.aside(|| fill(api, frames)) },
        false => unlocked::fill(api, frames),
    };
    static INTERPRETER: OnceLock<Range<usize>> = OnceLock::new();
    let range = INTERPRETER.get_or_init(|| module_frames(api.code));
    (count != 0).then(|| (range.clone(), count))
}

/// # Safety
///
/// The thread has the lock.
unsafe fn fill(api: &Api, frames: &mut [usize]) -> usize {
    let mut count = 0;
    // SAFETY: as the caller guarantees.
    let mut next = unsafe { api.innermost() };
    while let Some(frame) = next {
        if count == frames.len() {
            break;
        }
        // SAFETY: it is a frame.
        if let Some((code, line)) = unsafe { frame.code() } {
            frames[count] = number(&code, line);
            count += 1;
        }
        // SAFETY: it is a frame.
        next = unsafe { frame.back() };
    }
    count
}

/// The number of a frame.
fn number(code: &Owned<'_>, line: u32) -> usize {
    if let Some(known) = table::find(code.address(), line) {
        return known;
    }
    let function = code.text(c"co_qualname").or_else(|| code.text(c"co_name"));
    let frame = ForeignFrame {
        function: function.unwrap_or_default(),
        file: code.text(c"co_filename").unwrap_or_default(),
        line,
    };
    if !table::may_keep(code.address()) {
        return table::number_by_names(frame);
    }
    let (number, is_new) = table::add(code.address(), line, frame);
    if is_new {
        // Its address stands for it.
        code.keep();
    }
    number
}
