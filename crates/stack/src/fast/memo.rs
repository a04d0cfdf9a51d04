//! Stacks that a thread has captured before, recognized without a walk.
//!
//! A walk is a function of the registers that it starts with, and of the words of the stack that it reads: the return
//! addresses, and those saved frame pointers that a rule refers to. So a stack with the same registers and the same words
//! at the same addresses has the same frames. To compare a word takes a fraction of the time of a rule.

use super::arch::jump_with_registers;
use super::rule::Frame;
use super::{METHOD, NO_RULES, RULES, bounds, find, modules, table, walk};

/// Stacks are looked for by their stack pointer, among so many.
const WAYS: usize = 4;
const SETS: usize = 16;

/// How many stacks are remembered at most.
pub(crate) const MOST: usize = WAYS * SETS;

/// A stack.
pub(crate) struct Memo {
    start: Frame,
    /// Whether a rule refers to the frame pointer at the start.
    uses_fp: bool,
    /// How many frames were wanted.
    len: usize,
    /// If modules with frames on it can be unloaded: how many had been when it was captured.
    unloaded: Option<u64>,
    /// Addresses, and what was there.
    words: Box<[(usize, usize)]>,
}

/// Stacks of one thread.
pub(crate) struct Memory {
    memos: Box<[Option<Memo>]>,
    /// The next to be replaced in each set.
    next: [u8; SETS],
}

/// A capture.
pub(crate) enum Recall {
    /// The index that [`Memory::put`] returned for this stack.
    Known(usize),
    /// The number of frames, and the stack if it can be recognized later.
    New(usize, Option<Memo>),
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            memos: (0..MOST).map(|_| None).collect(),
            next: [0; SETS],
        }
    }
}

fn set_of(sp: usize) -> usize {
    // Stack pointers differ from bit 4 on.
    let mixed = (sp as u64 >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> (64 - SETS.trailing_zeros())) as usize
}

impl Memory {
    /// Keeps a stack, and returns its index.
    pub(crate) fn put(&mut self, memo: Memo) -> usize {
        let set = set_of(memo.start.sp);
        let way = usize::from(self.next[set]);
        self.next[set] = ((way + 1) % WAYS) as u8;
        let index = set * WAYS + way;
        self.memos[index] = Some(memo);
        index
    }

    /// # Safety
    ///
    /// As in [`Memo::is`].
    #[inline(always)]
    unsafe fn find(&self, start: Frame, len: usize) -> Option<usize> {
        let first = set_of(start.sp) * WAYS;
        let mut indices = first..first + WAYS;
        // SAFETY: as the caller ensures.
        indices.find(
            |index| matches!(&self.memos[*index], Some(memo) if unsafe { memo.is(start, len) }),
        )
    }
}

impl Memo {
    /// Whether a stack is this one.
    ///
    /// # Safety
    ///
    /// `start` must be the registers of a function that has called and has not yet returned, on the thread that this stack
    /// was captured on.
    #[inline(always)]
    unsafe fn is(&self, start: Frame, len: usize) -> bool {
        if (self.start.sp, self.start.ra, self.len) != (start.sp, start.ra, len)
            || (self.uses_fp && self.start.fp != start.fp)
        {
            return false;
        }
        let is_same = |(address, word): &(usize, usize)| {
            // SAFETY: with this stack pointer it was on the thread's stack, or in the margin below, so it is now.
            *word == unsafe { read(*address) }
        };
        self.words.iter().all(is_same) && (self.unloaded.is_none() || self.is_loaded())
    }

    #[cold]
    #[inline(never)]
    fn is_loaded(&self) -> bool {
        self.unloaded == modules::unloaded()
    }
}

/// # Safety
///
/// There must be a readable word, aligned or not.
#[inline(always)]
unsafe fn read(address: usize) -> usize {
    // SAFETY: as the caller ensures.
    unsafe { std::ptr::with_exposed_provenance::<usize>(address).read_unaligned() }
}

/// What [`recall`] passes to the function that has its caller's registers.
struct Request<'a> {
    memory: &'a Memory,
    frames: &'a mut [usize],
    recall: Recall,
}

/// Captures the caller's stack into `frames`, unless it is known. One memory is for one thread.
#[inline(always)]
pub(crate) fn recall(memory: &Memory, frames: &mut [usize]) -> Recall {
    let mut request = Request {
        memory,
        frames,
        recall: Recall::New(0, None),
    };
    // SAFETY: the pointer is valid.
    unsafe { enter(&raw mut request) };
    request.recall
}

/// # Safety
///
/// `request` must be valid.
#[unsafe(naked)]
unsafe extern "C" fn enter(request: *mut Request<'_>) {
    std::arch::naked_asm!(jump_with_registers!(), target = sym target)
}

unsafe extern "C" fn target(request: *mut Request<'_>, _: usize, sp: usize, fp: usize, ra: usize) {
    // SAFETY: `recall` passes a valid one.
    let request = unsafe { &mut *request };
    let start = Frame { ra, sp, fp };
    // SAFETY: these are the registers of the function that called `enter`, and the memory is for the calling thread.
    request.recall = match unsafe { request.memory.find(start, request.frames.len()) } {
        Some(index) => Recall::Known(index),
        // SAFETY: as above.
        None => unsafe { capture(request.frames, start) },
    };
}

/// # Safety
///
/// As in [`walk`].
#[cold]
#[inline(never)]
unsafe fn capture(frames: &mut [usize], start: Frame) -> Recall {
    use std::sync::atomic::Ordering::Acquire;
    // SAFETY: as the caller ensures.
    let count = unsafe { walk(frames, start) };
    // Undecided methods are decided by the walk.
    let by_rules = METHOD.load(Acquire) == RULES && count != NO_RULES;
    let memo = by_rules.then(|| {
        // SAFETY: as the caller ensures.
        unsafe { note(&frames[..count], frames.len(), start) }
    });
    Recall::New(count, memo.flatten())
}

/// Where the frame pointer of a frame is from.
enum Origin {
    Start,
    Word(usize),
    Noted,
}

/// Walks once more, and notes what is read. `None` where the rules do not cover the stack.
///
/// # Safety
///
/// As in [`walk`].
unsafe fn note(frames: &[usize], len: usize, start: Frame) -> Option<Memo> {
    let high = bounds::top(start.sp)?;
    let mut words = Vec::with_capacity(frames.len() + 4);
    let (mut uses_fp, mut unloadable, mut refreshed) = (false, false, false);
    let mut origin = Origin::Start;
    let mut frame = start;
    // The last of as many frames as were wanted needs no rule.
    let steps = if frames.len() == len {
        len.saturating_sub(1)
    } else {
        usize::MAX
    };
    for at in 0..steps {
        if frame.ra != *frames.get(at).unwrap_or(&0) {
            return None;
        }
        let rule = table::first(frame.ra).unwrap_or_else(|| find(frame.ra, &mut refreshed));
        unloadable |= rule.is_unloadable();
        // SAFETY: as in `by_rules`.
        let Some(caller) = (unsafe { rule.apply(frame, high) }) else {
            // The end, or else a stack that `backtrace` captured.
            let is_end = frame.ra == 0 || rule.is_end();
            if !is_end || at < frames.len().saturating_sub(1) {
                return None;
            }
            break;
        };
        if rule.is_from_fp() {
            match origin {
                Origin::Start => uses_fp = true,
                // SAFETY: the walk has read it.
                Origin::Word(address) => words.push((address, unsafe { read(address) })),
                Origin::Noted => {}
            }
            origin = Origin::Noted;
        }
        let (ra, fp) = rule.slots(caller.sp);
        // SAFETY: the walk has read it.
        words.push((ra, unsafe { read(ra) }));
        if let Some(fp) = fp {
            origin = Origin::Word(fp);
        }
        frame = caller;
    }
    let unloaded = match unloadable {
        true => Some(modules::unloaded()?),
        false => None,
    };
    Some(Memo {
        start,
        uses_fp,
        len,
        unloaded,
        words: words.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::{MOST, Memo, Memory, set_of};
    use crate::fast::rule::Frame;

    fn memo(sp: usize) -> Memo {
        Memo {
            start: Frame { ra: 1, sp, fp: 0 },
            uses_fp: false,
            len: 8,
            unloaded: None,
            words: Box::default(),
        }
    }

    #[test]
    fn each_stack_has_an_index_of_its_own() {
        let mut memory = Memory::default();
        let sp = 0x7fff_0000_1230;
        let indices: Vec<usize> = (0..4).map(|_| memory.put(memo(sp))).collect();
        let mut distinct = indices.clone();
        distinct.dedup();
        assert_eq!(distinct.len(), 4);
        assert!(indices.iter().all(|index| *index < MOST));
        // The first one is replaced.
        assert_eq!(memory.put(memo(sp)), indices[0]);
        // SAFETY: a memo without words reads nothing.
        let found = unsafe { memory.find(memo(sp).start, 8) };
        assert!(found.is_some_and(|index| indices.contains(&index)));
        // SAFETY: as above.
        assert_eq!(unsafe { memory.find(memo(sp).start, 9) }, None);
    }

    #[test]
    fn stack_pointers_spread_over_the_sets() {
        let sets: std::collections::HashSet<_> =
            (0..64).map(|i| set_of(0x7fff_0000_0000 + i * 48)).collect();
        assert!(sets.len() > 10, "{sets:?}");
    }
}
