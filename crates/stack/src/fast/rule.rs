//! How to get from a frame to its caller, packed into the low bits of a word.
//!
//! The canonical frame address (CFA) is the stack pointer that the caller had before its call. It
//! follows from the stack pointer or from the frame pointer by adding an offset. The return address
//! and the caller's frame pointer lie at offsets below it. That is all a compiler normally needs,
//! and all that a rule can say; anything else is [`Rule::SLOW`].
//!
//! | bits | meaning |
//! |---|---|
//! | 0 | the module can be unloaded |
//! | 1 | the CFA is counted from the frame pointer, else from the stack pointer |
//! | 2 | AArch64: the frame pointer was saved right below the return address |
//! | from 3 on | the CFA's offset in bytes, a multiple of 8 |
//! | from `SLOT_SHIFT` on | how many words below the CFA something was saved |
//!
//! On x86-64 the return address is always the word below the CFA, and the slot is that of the frame
//! pointer; 1 stands for a frame pointer that was not touched. It is stored as its distance to the
//! largest one. On AArch64 it is that of the return address.
//!
//! An offset of 0 is no rule: the walk stops there, because the CFA does not grow, and only then
//! looks at what the word says. So the walk has no test for it.

#[cfg(target_arch = "x86_64")]
use std::hint::select_unpredictable;

const VOLATILE: u64 = 1;
const FROM_FP: u64 = 1 << 1;
#[cfg(target_arch = "aarch64")]
const FP_SAVED: u64 = 1 << 2;

/// 4 MiB of frame, and the frame pointer among the 255 words next to the CFA: compilers save it
/// with the first pushes.
#[cfg(target_arch = "x86_64")]
const SLOT_SHIFT: u32 = 22;
/// 128 KiB of frame, and the return address anywhere in it: GCC saves it at the lower end.
#[cfg(target_arch = "aarch64")]
const SLOT_SHIFT: u32 = 17;

/// How many bits of a word a rule takes. The others are left to the table.
#[cfg(target_arch = "x86_64")]
pub(super) const RULE_BITS: u32 = 30;
#[cfg(target_arch = "aarch64")]
pub(super) const RULE_BITS: u32 = 31;

/// How far below the stack pointer of a frame [`Rule::apply`] may read, whatever the rule says.
#[cfg(target_arch = "x86_64")]
pub(super) const MARGIN: usize = SLOT_MAX as usize * 8;
#[cfg(target_arch = "aarch64")]
pub(super) const MARGIN: usize = 8;

const OFFSET_MASK: u64 = (1 << SLOT_SHIFT) - 8;
const SLOT_MAX: u64 = (1 << (RULE_BITS - SLOT_SHIFT)) - 1;

/// What the CFA is counted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// The stack pointer.
    Sp,
    /// The frame pointer.
    Fp,
}

/// A frame as a walk sees it: the registers after return to the function with the address `ra`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) ra: usize,
    pub(super) sp: usize,
    pub(super) fp: usize,
}

/// A packed rule. The bits from [`RULE_BITS`] on are not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule(pub(super) u64);

impl Rule {
    /// This stack is left to `backtrace`.
    pub(super) const SLOW: Rule = Rule(0);
    /// There is no caller.
    pub(super) const END: Rule = Rule(1 << SLOT_SHIFT);

    /// The rule with these offsets in bytes, the latter two from the CFA, or `SLOW`. Without `fp`
    /// the frame pointer is still that of the caller.
    pub(super) fn new(base: Base, cfa: i64, ra: i64, fp: Option<i64>) -> Rule {
        Rule::packed(base, cfa, ra, fp).unwrap_or(Rule::SLOW)
    }

    #[cfg(target_arch = "x86_64")]
    fn packed(base: Base, cfa: i64, ra: i64, fp: Option<i64>) -> Option<Rule> {
        if ra != -8 {
            return None;
        }
        let slot = match fp {
            // A frame pointer in place of the return address makes no sense.
            Some(-8) => return None,
            Some(offset) => slot(offset)?,
            None => 1,
        };
        Some(Rule(
            offset(cfa)? | from(base) | (SLOT_MAX - slot) << SLOT_SHIFT,
        ))
    }

    #[cfg(target_arch = "aarch64")]
    fn packed(base: Base, cfa: i64, ra: i64, fp: Option<i64>) -> Option<Rule> {
        let saved = match fp {
            Some(offset) if offset == ra.checked_sub(8)? => FP_SAVED,
            Some(_) => return None,
            None => 0,
        };
        Some(Rule(
            offset(cfa)? | from(base) | saved | slot(ra)? << SLOT_SHIFT,
        ))
    }

    /// The same rule, for a module that can be unloaded.
    pub(super) fn volatile(self) -> Rule {
        Rule(self.0 | VOLATILE)
    }

    #[inline(always)]
    pub(super) fn is_volatile(self) -> bool {
        self.0 & VOLATILE != 0
    }

    /// Whether this is [`END`](Self::END).
    pub(super) fn is_end(self) -> bool {
        self.0 & ((1 << RULE_BITS) - 1) & !VOLATILE == Rule::END.0
    }

    /// The frame of the caller; `None` where the rule is no plain one, or leads out of the stack,
    /// which ends at `high`.
    ///
    /// # Safety
    ///
    /// The memory from [`MARGIN`] bytes below `frame.sp` up to `high` must be readable.
    #[inline(always)]
    pub(super) unsafe fn apply(self, frame: Frame, high: usize) -> Option<Frame> {
        let mut base = frame.sp;
        if self.0 & FROM_FP != 0 {
            base = frame.fp;
            // A branch, and no conditional move: the next frame's address waits for this sum, and
            // the processor mostly guesses right. An empty block of assembly keeps it a branch.
            // SAFETY: it does nothing.
            unsafe { std::arch::asm!("", options(nomem, nostack, preserves_flags)) };
        }
        let cfa = base.wrapping_add((self.0 & OFFSET_MASK) as usize);
        // No look at the alignment: a word that is not aligned can be read as well.
        if cfa <= frame.sp || cfa > high {
            return None;
        }
        // SAFETY: `cfa` was checked just now, and the rest is the caller's word.
        unsafe { self.load(frame, cfa) }
    }

    /// # Safety
    ///
    /// The memory from [`MARGIN`] bytes below `frame.sp` up to `cfa` must be readable, and `cfa` must
    /// lie above `frame.sp`. At least the last 8 bytes below `cfa` must lie above the margin's end.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn load(self, frame: Frame, cfa: usize) -> Option<Frame> {
        // Counted from the other end, which saves a subtraction.
        let above = self.slot_bytes();
        // SAFETY: both lie at most `MARGIN` bytes below `cfa`, and at least 8 bytes: only the rules
        // that never come here have a slot of 0.
        let (ra, fp) = unsafe { (word(cfa - 8), word(cfa - MARGIN + above)) };
        Some(Frame {
            ra,
            sp: cfa,
            // Where it was not saved, that is the return address: it can be read without a test.
            fp: select_unpredictable(above == MARGIN - 8, frame.fp, fp),
        })
    }

    /// # Safety
    ///
    /// As above.
    #[cfg(target_arch = "aarch64")]
    #[inline(always)]
    unsafe fn load(self, frame: Frame, cfa: usize) -> Option<Frame> {
        let below = self.slot_bytes();
        // The slot can be far away, further than anybody could ask for as a margin.
        if below > cfa - frame.sp {
            return None;
        }
        let saved = cfa - below;
        // SAFETY: it lies between `sp` and `cfa`.
        let ra = super::enter::strip(unsafe { word(saved) });
        let mut fp = frame.fp;
        if self.0 & FP_SAVED != 0 {
            // SAFETY: it lies in the margin at worst.
            fp = unsafe { word(saved - 8) };
        }
        Some(Frame { ra, sp: cfa, fp })
    }

    /// The slot as it is packed, in bytes.
    #[inline(always)]
    fn slot_bytes(self) -> usize {
        ((self.0 >> (SLOT_SHIFT - 3)) & (SLOT_MAX << 3)) as usize
    }
}

fn from(base: Base) -> u64 {
    match base {
        Base::Sp => 0,
        Base::Fp => FROM_FP,
    }
}

/// The offset of a CFA as it is packed.
fn offset(cfa: i64) -> Option<u64> {
    let cfa = u64::try_from(cfa).ok()?;
    (cfa != 0 && cfa & OFFSET_MASK == cfa).then_some(cfa)
}

/// The number of words below the CFA.
fn slot(offset: i64) -> Option<u64> {
    let below = u64::try_from(offset.checked_neg()?).ok()?;
    let slot = below / 8;
    (below % 8 == 0 && slot != 0 && slot <= SLOT_MAX).then_some(slot)
}

/// # Safety
///
/// There must be a readable word at `address`, aligned or not.
#[inline(always)]
unsafe fn word(address: usize) -> usize {
    // SAFETY: the caller's word.
    unsafe { std::ptr::with_exposed_provenance::<usize>(address).read_unaligned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_arch = "x86_64")]
    const RA: i64 = -8;
    #[cfg(target_arch = "aarch64")]
    const RA: i64 = -24;

    /// A stack of words, each of which holds its own address, and a frame in its middle.
    fn stack() -> (Vec<usize>, Frame, usize) {
        let mut words = vec![0usize; 1024];
        let start = words.as_ptr().expose_provenance();
        for (at, word) in words.iter_mut().enumerate() {
            *word = start + at * 8;
        }
        let frame = Frame {
            ra: 1,
            sp: start + 512 * 8,
            fp: start + 600 * 8,
        };
        let high = start + words.len() * 8;
        (words, frame, high)
    }

    fn apply(rule: Rule) -> Option<(usize, usize, usize, usize, usize)> {
        let (words, frame, high) = stack();
        // SAFETY: there are 512 words on each side of the stack pointer.
        let caller = unsafe { rule.apply(frame, high) };
        drop(words);
        caller.map(|caller| (caller.ra, caller.sp, caller.fp, frame.sp, frame.fp))
    }

    #[test]
    fn offsets_come_back_as_they_were() {
        for cfa in [32, 48, 96, 2048] {
            let rule = Rule::new(Base::Sp, cfa, RA, None);
            let (ra, sp, fp, old_sp, old_fp) = apply(rule).unwrap();
            assert_eq!(sp, old_sp + cfa as usize);
            assert_eq!(ra, sp - RA.unsigned_abs() as usize);
            assert_eq!(fp, old_fp);

            let rule = Rule::new(Base::Fp, cfa, RA, Some(RA - 8));
            let (ra, sp, fp, _, old_fp) = apply(rule).unwrap();
            assert_eq!(sp, old_fp + cfa as usize);
            assert_eq!(ra, sp - RA.unsigned_abs() as usize);
            assert_eq!(fp, ra - 8);
        }
    }

    #[test]
    fn nothing_is_read_outside_of_the_stack() {
        assert_eq!(apply(Rule::new(Base::Sp, 513 * 8, RA, None)), None);
        assert_eq!(apply(Rule::new(Base::Fp, 425 * 8, RA, None)), None);
        assert!(apply(Rule::new(Base::Sp, 512 * 8, RA, None)).is_some());
        // A frame pointer below the stack pointer.
        let (_words, mut frame, high) = stack();
        frame.fp = frame.sp - 64;
        let rule = Rule::new(Base::Fp, 64, RA, None);
        // SAFETY: as in `apply`.
        assert!(unsafe { rule.apply(frame, high) }.is_none());
    }

    #[test]
    fn what_does_not_fit_is_slow() {
        for rule in [
            Rule::new(Base::Sp, 0, RA, None),
            Rule::new(Base::Sp, -16, RA, None),
            Rule::new(Base::Sp, 20, RA, None),
            Rule::new(Base::Sp, 1 << SLOT_SHIFT, RA, None),
            Rule::new(Base::Sp, 16, 8, None),
            Rule::new(Base::Sp, 16, i64::MIN, None),
            Rule::new(Base::Sp, 16, RA, Some(RA)),
            Rule::new(Base::Sp, 16, RA, Some(i64::MIN)),
            Rule::new(Base::Sp, i64::MAX, i64::MAX, Some(i64::MAX)),
        ] {
            assert_eq!(rule, Rule::SLOW);
        }
        assert!(apply(Rule::SLOW).is_none() && apply(Rule::END).is_none());
        assert!(Rule::END.is_end() && Rule::END.volatile().is_end());
        assert!(!Rule::SLOW.is_end() && !Rule::new(Base::Sp, 16, RA, None).is_end());
    }
}
