//! The stack trace of a call of the driver: native frames, with the frames of a Python interpreter in between.
//!
//! ```text
//!     wrapper      ─┐ of this library: left out
//!     cudaMalloc   ─┤
//!     extension.so ─┘ native frames
//!     train.py:12  ─┐ Python frames, in place of the innermost frame of the interpreter
//!     train.py:40  ─┘
//!     main         ── what is outside of the interpreter; its own frames are left out
//! ```
//!
//! A Python frame is a number with the highest bit set; `python` knows its file, line and function. Nothing here resolves
//! names.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use cuguard_registry::{MAX_DEPTH, Trace, TrackingLevel, name_thread};
use cuguard_stack::Remembered;

use crate::modules::module_frames;
use crate::python;

/// How many frames of this library are on top of a stack at most.
const OWN: usize = 16;

/// How many Python frames are kept.
const PYTHON: usize = MAX_DEPTH / 2;

/// How many frames are captured at level *sites*: those of the CUDA runtime, and the call site.
const SITES: usize = 16;

static LIMIT: AtomicUsize = AtomicUsize::new(MAX_DEPTH);

/// Sets how much is captured from now on.
pub(crate) fn set_level(level: TrackingLevel) {
    let limit = match level {
        TrackingLevel::Counts => 0,
        TrackingLevel::Sites => SITES,
        _ => MAX_DEPTH,
    };
    LIMIT.store(limit, Relaxed);
}

/// What a thread keeps from one call to the next.
struct Thread {
    /// The native frames of its last stacks, without those of this library.
    native: Remembered<Trace>,
    /// How many stacks were captured.
    calls: u32,
}

thread_local! {
    static THREAD: RefCell<Option<Thread>> = const { RefCell::new(None) };
}

/// The stack of the caller, without the frames of this library.
#[inline(never)]
pub(crate) fn trace() -> Trace {
    let limit = LIMIT.load(Relaxed);
    let known = THREAD.try_with(|thread| {
        let mut thread = thread.try_borrow_mut().ok()?;
        let thread = thread.get_or_insert_with(|| new_thread(limit));
        thread.calls = thread.calls.saturating_add(1);
        Some((thread.native.capture(intern), thread.calls))
    });
    let (native, calls) = match known {
        Ok(Some(known)) => known,
        _ => (capture_once(), 0),
    };
    match limit != 0 && python::is_present(calls) {
        true => add_python(native, limit),
        false => native,
    }
}

#[cold]
fn new_thread(limit: usize) -> Thread {
    name_caller();
    Thread {
        native: Remembered::new(limit + OWN),
        calls: 0,
    }
}

/// The native frames, on a thread whose variables are destroyed.
#[cold]
#[inline(never)]
fn capture_once() -> Trace {
    let mut frames = [0; MAX_DEPTH + OWN];
    let count = cuguard_stack::capture_frames(&mut frames);
    intern(&frames[..count])
}

/// Interns a stack without the frames of this library.
#[cold]
#[inline(never)]
fn intern(frames: &[usize]) -> Trace {
    let mut kept = [0; MAX_DEPTH];
    let limit = LIMIT.load(Relaxed);
    // Not only on top: the function that calls `main` is of this library, too, and so are functions that the program calls back
    // through.
    let others = frames.iter().filter(|frame| !is_own(**frame));
    let mut count = 0;
    for (to, from) in kept[..limit].iter_mut().zip(others) {
        *to = *from;
        count += 1;
    }
    Trace::new(&kept[..count])
}

/// Adds Python frames, and keeps `limit` frames at most. Not inlined, because most programs have no interpreter, and the arrays
/// are large.
#[inline(never)]
fn add_python(native: Trace, limit: usize) -> Trace {
    let mut python = [0; PYTHON];
    let Some((interpreter, python_count)) = python::frames(&mut python) else {
        return native;
    };
    let mut frames = [0; MAX_DEPTH];
    let count = merge(
        native.stack(),
        &python[..python_count],
        &interpreter,
        &mut frames[..limit],
    );
    Trace::new(&frames[..count])
}

/// Puts Python frames in place of the innermost frame of the interpreter, and leaves out its other frames. Where the
/// stack does not reach the interpreter, they follow.
fn merge(
    native: &[usize],
    python: &[usize],
    interpreter: &Range<usize>,
    frames: &mut [usize],
) -> usize {
    let is_interpreter = |frame: &&usize| interpreter.contains(&frame.wrapping_sub(1));
    let inner = native.iter().position(|frame| is_interpreter(&frame));
    let (inner, outer) = native.split_at(inner.unwrap_or(native.len()));
    let outer = outer.iter().filter(|frame| !is_interpreter(frame));
    let merged = inner.iter().chain(python).chain(outer);
    let mut count = 0;
    for (to, from) in frames.iter_mut().zip(merged) {
        *to = *from;
        count += 1;
    }
    count
}

/// Whether a return address is in this library.
fn is_own(frame: usize) -> bool {
    static OWN: OnceLock<Range<usize>> = OnceLock::new();
    OWN.get_or_init(|| module_frames(trace as *const () as usize))
        .contains(&frame.wrapping_sub(1))
}

/// Names the calling thread in the report, as the program named it.
fn name_caller() {
    // SAFETY: has no conditions.
    let is_main = cuguard_sync::own_thread::id() == unsafe { libc::getpid() };
    if is_main {
        return name_thread("main");
    }
    let mut name = [0_u8; 16];
    // SAFETY: the buffer has the 16 bytes that the kernel writes at most.
    let result = unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    if result == 0 && !name.is_empty() {
        name_thread(&String::from_utf8_lossy(name));
    }
}

#[cfg(test)]
mod tests {
    use super::merge;

    fn merged(native: &[usize], python: &[usize]) -> Vec<usize> {
        let mut frames = [0; 8];
        let count = merge(native, python, &(1000..2000), &mut frames);
        frames[..count].to_vec()
    }

    #[test]
    fn python_frames_replace_those_of_the_interpreter() {
        assert_eq!(
            merged(&[10, 20, 1500, 1600, 30], &[7, 8]),
            [10, 20, 7, 8, 30]
        );
        // An extension that calls Python, which calls an extension.
        assert_eq!(
            merged(&[10, 1500, 20, 1600, 30], &[7, 8]),
            [10, 7, 8, 20, 30]
        );
    }

    #[test]
    fn without_frames_of_the_interpreter_python_frames_follow() {
        assert_eq!(merged(&[10, 20], &[7]), [10, 20, 7]);
        assert_eq!(merged(&[10, 20], &[]), [10, 20]);
        assert_eq!(merged(&[], &[7]), [7]);
    }

    #[test]
    fn what_does_not_fit_is_the_outermost() {
        let native: Vec<usize> = (1..20).collect();
        assert_eq!(merged(&native, &[]), native[..8]);
        assert_eq!(merged(&[1, 2, 1500], &[7; 9]), [1, 2, 7, 7, 7, 7, 7, 7]);
    }
}
