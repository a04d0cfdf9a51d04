//! Stacks that a thread has captured before, recognized without a walk.
//!
//! A walk is a function of the registers that it starts with, and of the words of the stack that it reads: the return
//! addresses, and those saved frame pointers that a rule refers to. So a stack with the same registers and the same words
//! at the same addresses has the same frames. To compare a word takes a fraction of the time of a rule.

use std::sync::atomic::Ordering;

use super::arch::jump_with_registers;
use super::rule::Frame;
use super::{METHOD, RULES, Seen, bounds, find, modules, note_module, number, table, walk};

/// Stacks are looked for by their stack pointer, among so many. A function that calls from several lines has one for each.
const WAYS: usize = 8;
const SETS: usize = 8;

/// How many stacks are remembered at most.
pub(crate) const MOST: usize = WAYS * SETS;

/// Among so many stacks, one in so many replaces a stack that is remembered: a thread that is on more different ones in turn
/// recognizes some of them.
const REPLACES: u32 = 8;

/// How many stacks are known to have been captured once, by a hash.
const SEEN: usize = 64;

/// A stack.
pub(crate) struct Memo {
    start: Frame,
    /// Whether a rule refers to the frame pointer at the start.
    uses_fp: bool,
    /// If modules with frames on it can be unloaded: how many had been when it was captured.
    unloaded: Option<u64>,
    /// Addresses, and what was there. The last ones may be there several times.
    words: Box<[Words]>,
}

/// Compared together, without a branch for each.
type Words = [(usize, usize); 4];

/// Stacks of one thread.
pub(crate) struct Memory {
    memos: Box<[Option<Memo>; MOST]>,
    /// How many stacks each set was given.
    given: [u32; SETS],
    /// Hashes of stacks that were captured once. To remember a stack takes longer than to capture it, so that is done the
    /// second time.
    seen: [u64; SEEN],
    /// Stacks are captured into this.
    frames: Box<[usize]>,
    /// The stack that was captured last, if it can be recognized later.
    last: Option<Memo>,
}

fn set_of(sp: usize) -> usize {
    // Stack pointers differ from bit 4 on.
    let mixed = (sp as u64 >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> (64 - SETS.trailing_zeros())) as usize
}

impl Memory {
    /// `depth` is how many frames are captured at most.
    pub(crate) fn new(depth: usize) -> Self {
        Self {
            memos: Box::new([const { None }; MOST]),
            given: [0; SETS],
            seen: [0; SEEN],
            frames: vec![0; depth].into(),
            last: None,
        }
    }

    pub(crate) fn depth(&self) -> usize {
        self.frames.len()
    }

    /// The first of the frames that were captured last.
    pub(crate) fn frames(&self, count: usize) -> &[usize] {
        &self.frames[..count]
    }

    /// Keeps the stack that was captured last, and returns its index. `None` if it is not remembered.
    pub(crate) fn keep(&mut self) -> Option<usize> {
        let memo = self.last.take()?;
        self.put(memo)
    }

    fn put(&mut self, memo: Memo) -> Option<usize> {
        let set = set_of(memo.start.sp);
        let given = self.given[set];
        self.given[set] = given.wrapping_add(1);
        let way = match given as usize {
            free @ 0..WAYS => free,
            _ if given.is_multiple_of(REPLACES) => (given / REPLACES) as usize % WAYS,
            _ => return None,
        };
        let index = set * WAYS + way;
        self.memos[index] = Some(memo);
        Some(index)
    }

    /// Whether a stack was captured before. It is now.
    fn is_seen(&mut self, start: Frame, count: usize) -> bool {
        let frames = self.frames[..count].iter();
        let hash = frames.fold(start.sp as u64, |hash, frame| {
            (hash.rotate_left(5) ^ *frame as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
        });
        let place = &mut self.seen[(hash >> 32) as usize % SEEN];
        std::mem::replace(place, hash) == hash
    }

    /// # Safety
    ///
    /// As in [`Memo::is`].
    #[inline(always)]
    unsafe fn find(&self, start: Frame) -> Option<usize> {
        let first = set_of(start.sp) * WAYS;
        let mut indices = first..first + WAYS;
        // SAFETY: as the caller ensures.
        let is = |memo: &Memo| unsafe { memo.is(start) };
        indices.find(|index| self.memos[*index].as_ref().is_some_and(is))
    }

    /// Captures a stack. Returns how many frames there are.
    ///
    /// # Safety
    ///
    /// As in [`walk`].
    #[cold]
    #[inline(never)]
    unsafe fn capture(&mut self, start: Frame) -> usize {
        let mut seen = Seen::default();
        // SAFETY: as the caller ensures.
        let count = unsafe { walk(&mut self.frames, start, &mut seen) };
        // The walk decides an undecided method.
        let by_rules = METHOD.load(Ordering::Acquire) == RULES;
        self.last = (by_rules && self.is_seen(start, count))
            // SAFETY: as the caller ensures.
            .then(|| unsafe { note(&self.frames[..count], self.depth(), start) })
            .flatten();
        if seen.unloadable {
            number(&mut self.frames[..count]);
        }
        count
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
    unsafe fn is(&self, start: Frame) -> bool {
        if (self.start.sp, self.start.ra) != (start.sp, start.ra)
            || (self.uses_fp && self.start.fp != start.fp)
        {
            return false;
        }
        let is_same = |words: &Words| {
            let differences = words.map(|(address, word)| {
                // SAFETY: with this stack pointer it was on the thread's stack, or in the margin below, so it is now.
                word ^ unsafe { read(address) }
            });
            differences.into_iter().fold(0, |all, bits| all | bits) == 0
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

/// The index of the caller's stack, if it is known. Otherwise captures it, and returns [`MOST`] and the number of frames.
/// A memory is for one thread.
#[inline(always)]
pub(crate) fn recall(memory: &mut Memory) -> usize {
    // SAFETY: the pointer is valid.
    unsafe { enter(memory) }
}

/// # Safety
///
/// `memory` must be valid, and not in use.
#[unsafe(naked)]
unsafe extern "C" fn enter(memory: *mut Memory) -> usize {
    std::arch::naked_asm!(jump_with_registers!(), target = sym target)
}

unsafe extern "C" fn target(
    memory: *mut Memory,
    _: usize,
    sp: usize,
    fp: usize,
    ra: usize,
) -> usize {
    // SAFETY: `recall` passes a valid one.
    let memory = unsafe { &mut *memory };
    let start = Frame { ra, sp, fp };
    // SAFETY: these are the registers of the function that called `enter`, and the memory is for the calling thread.
    match unsafe { memory.find(start) } {
        // Another thread may have found that the rules are wrong for this program.
        Some(index) if METHOD.load(Ordering::Relaxed) == RULES => index,
        // SAFETY: as above.
        _ => MOST + unsafe { memory.capture(start) },
    }
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
    let (mut uses_fp, mut seen) = (false, Seen::default());
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
        let rule = table::first(frame.ra).unwrap_or_else(|| find(frame.ra, &mut seen));
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
    if steps != usize::MAX {
        note_module(frame.ra, &mut seen);
    }
    let unloaded = match seen.unloadable {
        true => Some(modules::unloaded()?),
        false => None,
    };
    Some(Memo {
        start,
        uses_fp,
        unloaded,
        words: in_fours(&words),
    })
}

fn in_fours(words: &[(usize, usize)]) -> Box<[Words]> {
    let fours = words.chunks(4).map(|chunk| {
        let last = chunk[chunk.len() - 1];
        std::array::from_fn(|at| *chunk.get(at).unwrap_or(&last))
    });
    fours.collect()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::{MOST, Memo, Memory, REPLACES, SETS, WAYS, set_of};
    use crate::fast::rule::Frame;

    fn memo(sp: usize) -> Memo {
        Memo {
            start: Frame { ra: 1, sp, fp: 0 },
            uses_fp: false,
            unloaded: None,
            words: Box::default(),
        }
    }

    #[test]
    fn each_stack_has_an_index_of_its_own() {
        let mut memory = Memory::new(8);
        let sp = 0x7fff_0000_1230;
        let indices: Vec<usize> = (0..WAYS).filter_map(|_| memory.put(memo(sp))).collect();
        let mut distinct = indices.clone();
        distinct.dedup();
        assert_eq!(distinct.len(), WAYS);
        assert!(indices.iter().all(|index| *index < MOST));
        // Now and then one is replaced.
        let replaced = (0..800).filter_map(|_| memory.put(memo(sp)));
        let replaced: Vec<usize> = replaced.collect();
        assert_eq!(replaced.len(), 800 / REPLACES as usize);
        assert!(indices.iter().all(|index| replaced.contains(index)));
        // SAFETY: a memo without words reads nothing.
        let found = unsafe { memory.find(memo(sp).start) };
        assert!(found.is_some_and(|index| indices.contains(&index)));
        let other = Frame {
            ra: 2,
            ..memo(sp).start
        };
        // SAFETY: as above.
        assert_eq!(unsafe { memory.find(other) }, None);
    }

    #[test]
    fn a_stack_is_seen_the_second_time() {
        let mut memory = Memory::new(8);
        memory.frames.copy_from_slice(&[1, 2, 3, 4, 5, 6, 7, 8]);
        let start = memo(0x7fff_0000_1230).start;
        assert!(!memory.is_seen(start, 8) && memory.is_seen(start, 8));
        assert!(!memory.is_seen(start, 7) && memory.is_seen(start, 7));
    }

    #[test]
    fn a_changed_word_is_another_stack() {
        let stack = [const { Cell::new(7_usize) }; 9];
        let address = |word: &Cell<usize>| word.as_ptr().expose_provenance();
        let words: Vec<_> = stack.iter().map(|word| (address(word), 7)).collect();
        let memo = Memo {
            words: super::in_fours(&words),
            ..memo(address(&stack[0]))
        };
        // SAFETY: all words can be read.
        let is_same = || unsafe { memo.is(memo.start) };
        assert!(is_same());
        for word in &stack {
            word.set(8);
            assert!(!is_same());
            word.set(7);
        }
        assert!(is_same());
    }

    #[test]
    fn stack_pointers_spread_over_the_sets() {
        let sets: std::collections::HashSet<_> =
            (0..64).map(|i| set_of(0x7fff_0000_0000 + i * 48)).collect();
        assert!(sets.len() > SETS / 2, "{sets:?}");
    }
}
