//! The walk by rules, and the choice whether it is taken at all.

mod bounds;
mod cfi;
mod enter;
mod modules;
mod rule;
mod table;

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering};

use self::rule::{Frame, Rule};
use crate::{Method, slow};

/// Which way captures go. A larger number wins over a smaller one.
static CHOICE: AtomicU8 = AtomicU8::new(OPEN);
const OPEN: u8 = 0;
const RULES: u8 = 1;
const BACKTRACE: u8 = 2;

/// Working out a rule takes some stack itself. Where there is less than this, `backtrace` is left
/// with it, which needs little.
const ROOM: usize = 64 << 10;

/// How many frames the first capture compares.
const COMPARED: usize = 64;

thread_local! {
    /// Set while this thread makes the choice.
    static CHOOSING: Cell<bool> = const { Cell::new(false) };
}

/// See [`crate::capture`].
#[inline(always)]
pub(crate) fn capture(frames: &mut [usize]) -> usize {
    // SAFETY: pointer and length are those of a slice.
    unsafe { enter::enter(frames.as_mut_ptr(), frames.len()) }
}

/// See [`crate::capture_with_backtrace`].
#[inline(always)]
pub(crate) fn capture_with_backtrace(frames: &mut [usize]) -> usize {
    // SAFETY: pointer and length are those of a slice.
    unsafe { enter::enter_with_backtrace(frames.as_mut_ptr(), frames.len()) }
}

/// See [`crate::capture_with_rules`].
#[inline(always)]
pub(crate) fn capture_with_rules(frames: &mut [usize]) -> Option<usize> {
    // SAFETY: pointer and length are those of a slice.
    let count = unsafe { enter::enter_with_rules(frames.as_mut_ptr(), frames.len()) };
    (count != NOT_COVERED).then_some(count)
}

/// See [`crate::method()`].
pub(crate) fn method() -> Method {
    if CHOICE.load(Ordering::Acquire) == OPEN {
        capture(&mut [0]);
    }
    match CHOICE.load(Ordering::Acquire) {
        RULES => Method::Rules,
        // Still open: this stack is none to compare on, and was left to `backtrace`.
        _ => Method::Backtrace,
    }
}

/// What [`walk_with_rules`] answers for a stack that has to be left to `backtrace`.
const NOT_COVERED: usize = usize::MAX;

/// Fills `frames` with the stack of the function that will go on with these registers.
///
/// # Safety
///
/// `frames` must point to `len` writable words. The registers must be those of the caller after the
/// call.
unsafe extern "C" fn walk(
    frames: *mut usize,
    len: usize,
    sp: usize,
    fp: usize,
    ra: usize,
) -> usize {
    // SAFETY: the caller's word.
    match unsafe { walk_with_rules(frames, len, sp, fp, ra) } {
        NOT_COVERED => {
            // SAFETY: the caller's word.
            unsafe { walk_with_backtrace(frames, len, sp, fp, ra) }
        }
        count => count,
    }
}

/// The same, or [`NOT_COVERED`].
///
/// # Safety
///
/// As in [`walk`].
#[inline(always)]
unsafe extern "C" fn walk_with_rules(
    frames: *mut usize,
    len: usize,
    sp: usize,
    fp: usize,
    ra: usize,
) -> usize {
    // SAFETY: the caller's word.
    let frames = unsafe { std::slice::from_raw_parts_mut(frames, len) };
    let start = Frame { ra, sp, fp };
    // Acquire: who sees the choice also sees the modules that stay.
    if CHOICE.load(Ordering::Acquire) != RULES && !choose(start) {
        return NOT_COVERED;
    }
    // SAFETY: the caller's word.
    unsafe { by_rules(frames, start) }.unwrap_or(NOT_COVERED)
}

/// The same, always by `backtrace`.
///
/// # Safety
///
/// As in [`walk`].
unsafe extern "C" fn walk_with_backtrace(
    frames: *mut usize,
    len: usize,
    _sp: usize,
    _fp: usize,
    ra: usize,
) -> usize {
    // SAFETY: the caller's word.
    let frames = unsafe { std::slice::from_raw_parts_mut(frames, len) };
    slow::trace(frames, Some(ra))
}

/// Walks by rules; `None` if this stack has to be left to `backtrace`.
///
/// # Safety
///
/// `start` must be the registers of a function that has called and has not yet returned, on the
/// calling thread.
#[inline(always)]
unsafe fn by_rules(frames: &mut [usize], start: Frame) -> Option<usize> {
    let high = bounds::top(start.sp)?;
    let len = frames.len();
    let mut places = frames.iter_mut();
    let mut place = match places.next() {
        Some(place) => place,
        None => return Some(0),
    };
    let mut asked = false;
    let mut frame = start;
    loop {
        *place = frame.ra;
        // The last frame needs no rule.
        place = match places.next() {
            Some(place) => place,
            None => return Some(len - usize::from(frame.ra == 0)),
        };
        let rule = match table::first(frame.ra) {
            Some(rule) => rule,
            None => find(frame.ra, &mut asked),
        };
        // SAFETY: the stack is readable from the margin below the start up to `high`, and `sp` only
        // grows from there.
        match unsafe { rule.apply(frame, high) } {
            Some(caller) => frame = caller,
            None if frame.ra == 0 || rule.is_end() => {
                // One place is taken ahead. A null address is no frame, and has no rule that leads
                // on from it.
                let filled = len - places.len() - 1;
                return Some(filled - usize::from(frame.ra == 0));
            }
            None => return None,
        }
    }
}

/// The rule for a return address that is not at its first place in the table. `asked` says whether
/// this walk has asked for unloaded modules already.
#[cold]
#[inline(never)]
fn find(ra: usize, asked: &mut bool) -> Rule {
    let found = table::second(ra).and_then(|rule| {
        if !rule.is_volatile() {
            return Some(rule);
        }
        if !std::mem::replace(asked, true) {
            table::refresh();
        }
        // Once more: the one that was seen may be from before the modules changed.
        table::second(ra)
    });
    if let Some(rule) = found {
        return rule;
    }
    if bounds::room() < ROOM {
        return Rule::SLOW;
    }
    let rule = cfi::rule(ra);
    table::put(ra, rule);
    rule
}

/// Makes the choice if it is open, by going both ways on this stack. Answers whether it is for the
/// rules.
#[cold]
#[inline(never)]
fn choose(start: Frame) -> bool {
    // Looking for the stack's bounds may allocate, and an allocator may want a stack as well.
    if CHOICE.load(Ordering::Acquire) != OPEN || bounds::top(start.sp).is_none() {
        return false;
    }
    if bounds::room() < ROOM || CHOOSING.replace(true) {
        return false;
    }
    modules::note_staying();
    let (mut a, mut b) = ([0; COMPARED], [0; COMPARED]);
    // SAFETY: `start` is what the caller of this crate has.
    if let Some(count) = unsafe { by_rules(&mut a, start) } {
        let expected = slow::trace(&mut b, Some(start.ra));
        let equal = count == expected && a == b;
        let choice = if equal { RULES } else { BACKTRACE };
        CHOICE.fetch_max(choice, Ordering::AcqRel);
    }
    // Where the rules do not cover this stack, another one decides.
    CHOOSING.set(false);
    CHOICE.load(Ordering::Acquire) == RULES
}
