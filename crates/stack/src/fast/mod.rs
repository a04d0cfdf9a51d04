//! The walk by rules, and the decision whether it is used at all. Must not know what stacks are captured for.

mod arch;
mod bounds;
mod cfi;
mod loads;
mod mapped;
mod memo;
mod modules;
mod needed;
mod rule;
mod table;

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering};

use self::arch::{entry, jump_with_registers};
pub(crate) use self::loads::{is_unloadable, locate, number};
pub(crate) use self::memo::{MOST, Memory, recall};
use self::rule::{Frame, Rule};
use crate::fallback;
use crate::method::Method;

/// How captures are made. A larger number wins over a smaller one.
static METHOD: AtomicU8 = AtomicU8::new(UNDECIDED);
const UNDECIDED: u8 = 0;
const RULES: u8 = 1;
const BACKTRACE: u8 = 2;

/// Computing a rule needs some stack. Where there is less than this, `backtrace` is used, which needs
/// little.
const MIN_STACK: usize = 64 << 10;

/// How many frames the first capture compares.
const COMPARED: usize = 64;

thread_local! {
    /// Set while this thread decides.
    static DECIDING: Cell<bool> = const { Cell::new(false) };
}

entry!(enter, walk_addresses);
entry!(enter_numbered, walk_numbered);
entry!(enter_with_backtrace, walk_with_backtrace);
entry!(enter_with_rules, walk_with_rules);

/// See [`crate::capture`].
#[inline(always)]
pub(crate) fn capture(frames: &mut [usize]) -> usize {
    // SAFETY: pointer and length are those of a slice.
    unsafe { enter(frames.as_mut_ptr(), frames.len()) }
}

/// See [`crate::capture_frames`].
#[inline(always)]
pub(crate) fn capture_frames(frames: &mut [usize]) -> usize {
    // SAFETY: pointer and length are those of a slice.
    unsafe { enter_numbered(frames.as_mut_ptr(), frames.len()) }
}

/// See [`crate::capture_with_backtrace`].
#[inline(always)]
pub(crate) fn capture_with_backtrace(frames: &mut [usize]) -> usize {
    // SAFETY: pointer and length are those of a slice.
    unsafe { enter_with_backtrace(frames.as_mut_ptr(), frames.len()) }
}

/// See [`crate::capture_with_rules`].
#[inline(always)]
pub(crate) fn capture_with_rules(frames: &mut [usize]) -> Option<usize> {
    // SAFETY: pointer and length are those of a slice.
    let count = unsafe { enter_with_rules(frames.as_mut_ptr(), frames.len()) };
    (count != NO_RULES).then_some(count)
}

/// See [`crate::method()`].
pub(crate) fn method() -> Method {
    if METHOD.load(Ordering::Acquire) == UNDECIDED {
        capture(&mut [0]);
    }
    match METHOD.load(Ordering::Acquire) {
        RULES => Method::Rules,
        // Still undecided: the rules do not cover this stack.
        _ => Method::Backtrace,
    }
}

/// What [`walk_with_rules`] returns for a stack that the rules do not cover.
const NO_RULES: usize = usize::MAX;

/// Which modules the frames of a walk are in.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Whether some may be in no permanent module.
    unloadable: bool,
    /// Whether the walk has checked for unloaded modules already.
    refreshed: bool,
}

/// Fills `frames` with the stack of the function that continues with the registers of `start`.
///
/// # Safety
///
/// `start` must be the registers of a function that has called and has not yet returned, on the
/// calling thread.
#[inline(always)]
unsafe fn walk(frames: &mut [usize], start: Frame, seen: &mut Seen) -> usize {
    // SAFETY: as the caller ensures.
    match unsafe { try_rules(frames, start, seen) } {
        Some(count) => count,
        None => {
            let count = fallback::trace(frames, Some(start.ra));
            modules::record_permanent_once();
            let mut calls = frames[..count].iter().map(|frame| frame.wrapping_sub(1));
            seen.unloadable = calls.any(|call| !modules::is_permanent(call));
            count
        }
    }
}

/// The same by rules, if they cover the stack.
///
/// # Safety
///
/// As in [`walk`].
#[inline(always)]
unsafe fn try_rules(frames: &mut [usize], start: Frame, seen: &mut Seen) -> Option<usize> {
    // Acquire: a thread that reads the decision also sees the permanent modules.
    if METHOD.load(Ordering::Acquire) != RULES && !decide(start) {
        return None;
    }
    // SAFETY: as the caller ensures.
    unsafe { by_rules(frames, start, seen) }
}

/// The walk of [`capture`].
///
/// # Safety
///
/// As in [`walk`].
#[inline(always)]
unsafe fn walk_addresses(frames: &mut [usize], start: Frame) -> usize {
    // SAFETY: as the caller ensures.
    unsafe { walk(frames, start, &mut Seen::default()) }
}

/// The walk of [`capture_frames`].
///
/// # Safety
///
/// As in [`walk`].
#[inline(always)]
unsafe fn walk_numbered(frames: &mut [usize], start: Frame) -> usize {
    let mut seen = Seen::default();
    // SAFETY: as the caller ensures.
    let count = unsafe { walk(frames, start, &mut seen) };
    if seen.unloadable {
        number(&mut frames[..count]);
    }
    count
}

/// The walk of [`capture_with_rules`]: the number of frames, or [`NO_RULES`].
///
/// # Safety
///
/// As in [`walk`].
#[inline(always)]
unsafe fn walk_with_rules(frames: &mut [usize], start: Frame) -> usize {
    // SAFETY: as the caller ensures.
    unsafe { try_rules(frames, start, &mut Seen::default()) }.unwrap_or(NO_RULES)
}

/// The same, always by `backtrace`.
///
/// # Safety
///
/// As in [`walk`].
unsafe fn walk_with_backtrace(frames: &mut [usize], start: Frame) -> usize {
    fallback::trace(frames, Some(start.ra))
}

/// Walks by rules; `None` if the rules do not cover this stack.
///
/// # Safety
///
/// As in [`walk`].
#[inline(always)]
unsafe fn by_rules(frames: &mut [usize], start: Frame, seen: &mut Seen) -> Option<usize> {
    let high = bounds::top(start.sp)?;
    let len = frames.len();
    let mut places = frames.iter_mut();
    let mut place = match places.next() {
        Some(place) => place,
        None => return Some(0),
    };
    let mut frame = start;
    loop {
        *place = frame.ra;
        // The last frame needs no rule.
        place = match places.next() {
            Some(place) => place,
            None => {
                note_module(frame.ra, seen);
                return Some(len - usize::from(frame.ra == 0));
            }
        };
        let rule = match table::first(frame.ra) {
            Some(rule) => rule,
            None => find(frame.ra, seen),
        };
        // SAFETY: the stack is readable from the margin below the start up to `high`, and `sp` only
        // grows from there.
        match unsafe { rule.apply(frame, high) } {
            Some(caller) => frame = caller,
            None if frame.ra == 0 || rule.is_end() => {
                // `place` is one ahead. A null address is not a frame, and has no rule.
                let filled = len - places.len() - 1;
                return Some(filled - usize::from(frame.ra == 0));
            }
            None => return None,
        }
    }
}

/// Notes the module of a frame that needs no rule.
#[inline(always)]
fn note_module(ra: usize, seen: &mut Seen) {
    // Only permanent code is in the first array.
    if table::first(ra).is_none() {
        find(ra, seen);
    }
}

/// The rule for a return address that the table's first array does not have.
#[cold]
#[inline(never)]
fn find(ra: usize, seen: &mut Seen) -> Rule {
    let rule = known_or_new(ra, seen);
    seen.unloadable |= rule.is_unloadable();
    rule
}

fn known_or_new(ra: usize, seen: &mut Seen) -> Rule {
    let found = table::second(ra).and_then(|rule| {
        if !rule.is_unloadable() {
            return Some(rule);
        }
        if !std::mem::replace(&mut seen.refreshed, true) {
            table::refresh();
        }
        // Once more: the rule found above may be from before a module was unloaded.
        table::second(ra)
    });
    if let Some(rule) = found {
        return rule;
    }
    if bounds::remaining() < MIN_STACK {
        // It is not known.
        seen.unloadable = true;
        return Rule::NONE;
    }
    let rule = cfi::rule(ra);
    table::put(ra, rule);
    rule
}

/// Decides on a method if it is undecided, by capturing this stack with both. Returns whether it is the
/// rules.
#[cold]
#[inline(never)]
fn decide(start: Frame) -> bool {
    // Querying the stack's bounds may allocate, and an allocator may capture a stack as well.
    if METHOD.load(Ordering::Acquire) != UNDECIDED || bounds::top(start.sp).is_none() {
        return false;
    }
    if bounds::remaining() < MIN_STACK || DECIDING.replace(true) {
        return false;
    }
    modules::record_permanent();
    let (mut a, mut b) = ([0; COMPARED], [0; COMPARED]);
    // SAFETY: `start` has the registers of the caller of this crate.
    if let Some(count) = unsafe { by_rules(&mut a, start, &mut Seen::default()) } {
        let expected = fallback::trace(&mut b, Some(start.ra));
        let equal = count == expected && a == b;
        let choice = if equal { RULES } else { BACKTRACE };
        METHOD.fetch_max(choice, Ordering::AcqRel);
    }
    // Where the rules do not cover this stack, a later capture decides.
    DECIDING.set(false);
    METHOD.load(Ordering::Acquire) == RULES
}
