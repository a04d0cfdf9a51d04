//! The frames of a Python interpreter in this process, for stack traces.
//!
//! - `api` has the functions of CPython, 3.9 and later, which are found in the process; `table` has the frames as numbers.
//!
//! Frames are read on a thread that has the interpreter's lock, by the public C API. Where an extension has released it
//! around the call of the driver, as `ctypes.CDLL`, PyTorch and CuPy do, the stack trace has native frames alone, unless
//! `LEAK_REPORT` has `python=unlocked`: then `unlocked` reads the frames from the interpreter's memory. To wait for the lock
//! there could deadlock, because the extension may hold a lock of its own that the thread with the interpreter's lock waits
//! for.
//!
//! Reading raises no exception, runs no code of the program and keeps no frame alive: a frame would keep the program's
//! tensors. Code objects of frames that were recorded with the lock are never freed.

mod api;
mod table;
mod unlocked;

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use cuguard_report::ForeignFrame;

use self::api::{Api, Owned};
pub(crate) use self::table::resolve;
use crate::modules::module_range;

static OFF: AtomicBool = AtomicBool::new(false);

static UNLOCKED: AtomicBool = AtomicBool::new(false);

/// Records Python frames also on threads that do not have the interpreter's lock.
pub(crate) fn read_unlocked() {
    UNLOCKED.store(true, Relaxed);
}

/// Records no Python frames from now on.
pub(crate) fn turn_off() {
    OFF.store(true, Relaxed);
}

/// Whether there is an interpreter, and its frames are recorded.
#[inline]
pub(crate) fn is_present() -> bool {
    !OFF.load(Relaxed) && Api::get().is_some()
}

/// Fills `frames` with the calling thread's Python frames, innermost first, as numbers for [`resolve`]. Returns the
/// addresses of the interpreter, and how many frames there are. `None` where there are none, or the thread does not have the
/// interpreter's lock.
pub(crate) fn frames(frames: &mut [usize]) -> Option<(Range<usize>, usize)> {
    let api = Api::get()?;
    let count = if api.is_locked_here() {
        // SAFETY: the thread has the lock.
        unsafe { api.aside(|| fill(api, frames)) }
    } else if UNLOCKED.load(Relaxed) && api.is_running() {
        unlocked::fill(api, frames)
    } else {
        0
    };
    if count == 0 {
        return None;
    }
    static INTERPRETER: OnceLock<Range<usize>> = OnceLock::new();
    let range = INTERPRETER.get_or_init(|| module_range(api.code));
    Some((range.clone(), count))
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
    let (number, is_new) = table::add(code.address(), line, frame);
    if is_new {
        // Its address stands for it.
        code.keep();
    }
    number
}
