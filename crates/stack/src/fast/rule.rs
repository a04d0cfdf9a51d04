//! How to get from a frame to its caller, packed into the low bits of a word.
//!
//! The canonical frame address (CFA) is the stack pointer that the caller had before its call: the stack
//! pointer or the frame pointer plus an offset. The return address and the caller's frame pointer are at
//! offsets below it. That is all that compilers normally use, and all that a rule can express; anything
//! else is [`Rule::NONE`].
//!
//! | bits | meaning |
//! |---|---|
//! | 0 | the module can be unloaded |
//! | 1 | the CFA is relative to the frame pointer, else to the stack pointer |
//! | 2 | AArch64: the frame pointer was saved right below the return address |
//! | from 3 on | the CFA's offset in bytes, a multiple of 8 |
//! | from `SLOT_SHIFT` on | how many words below the CFA something was saved |
//!
//! On x86-64 the return address is always the word below the CFA, and the slot is that of the frame
//! pointer; 1 means that the frame pointer is unchanged. It is stored as its distance to the largest one.
//! On AArch64 the slot is that of the return address.
//!
//! An offset of 0 is not a rule: the walk stops there, because the CFA does not grow, and only then
//! distinguishes `NONE` from `END`. So the walk needs no test for it.

#[cfg(target_arch = "x86_64")]
use std::hint::select_unpredictable;

const UNLOADABLE: u64 = 1;
const FROM_FP: u64 = 1 << 1;
#[cfg(target_arch = "aarch64")]
const FP_SAVED: u64 = 1 << 2;

/// Frames of up to 4 MiB, and the frame pointer among the 255 words next to the CFA: compilers save it
/// with the first pushes.
#[cfg(target_arch = "x86_64")]
const SLOT_SHIFT: u32 = 22;
/// Frames of up to 128 KiB, and the return address anywhere in it: GCC saves it at the lower end.
#[cfg(target_arch = "aarch64")]
const SLOT_SHIFT: u32 = 17;

/// How many bits of a word a rule takes. The table uses the others.
#[cfg(target_arch = "x86_64")]
pub(super) const RULE_BITS: u32 = 30;
#[cfg(target_arch = "aarch64")]
pub(super) const RULE_BITS: u32 = 31;

/// How far below the stack pointer of a frame [`Rule::apply`] may read, with any rule.
#[cfg(target_arch = "x86_64")]
pub(super) const MARGIN: usize = SLOT_MAX as usize * 8;
#[cfg(target_arch = "aarch64")]
pub(super) const MARGIN: usize = 8;

const OFFSET_MASK: u64 = (1 << SLOT_SHIFT) - 8;
const SLOT_MAX: u64 = (1 << (RULE_BITS - SLOT_SHIFT)) - 1;

/// What the CFA is relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// The stack pointer.
    Sp,
    /// The frame pointer.
    Fp,
}

/// A frame of a walk: the registers after the return to address `ra`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Frame {
    pub(super) ra: usize,
    pub(super) sp: usize,
    pub(super) fp: usize,
}

/// A packed rule. The bits from [`RULE_BITS`] on are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule(pub(super) u64);

impl Rule {
    /// No rule: `backtrace` captures this stack.
    pub(super) const NONE: Rule = Rule(0);
    /// There is no caller.
    pub(super) const END: Rule = Rule(1 << SLOT_SHIFT);

    /// The rule with these offsets in bytes, the latter two from the CFA; `None` if it does not fit. Without
    /// `fp` the frame pointer is unchanged.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn new(base: Base, cfa: i64, ra: i64, fp: Option<i64>) -> Option<Rule> {
        if ra != -8 {
            return None;
        }
        let slot = match fp {
            // This is where the return address is.
            Some(-8) => return None,
            Some(offset) => slot(offset)?,
            None => 1,
        };
        Some(Rule(
            offset(cfa)? | from(base) | (SLOT_MAX - slot) << SLOT_SHIFT,
        ))
    }

    /// As above.
    #[cfg(target_arch = "aarch64")]
    pub(super) fn new(base: Base, cfa: i64, ra: i64, fp: Option<i64>) -> Option<Rule> {
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
    pub(super) fn unloadable(self) -> Rule {
        Rule(self.0 | UNLOADABLE)
    }

    #[inline(always)]
    pub(super) fn is_unloadable(self) -> bool {
        self.0 & UNLOADABLE != 0
    }

    /// Whether this is [`END`](Self::END).
    pub(super) fn is_end(self) -> bool {
        self.0 & ((1 << RULE_BITS) - 1) & !UNLOADABLE == Rule::END.0
    }

    /// The frame of the caller; `None` for [`NONE`](Self::NONE) and [`END`](Self::END), and where the CFA
    /// is not on the stack, which ends at `high`.
    ///
    /// # Safety
    ///
    /// The memory from [`MARGIN`] bytes below `frame.sp` up to `high` must be readable.
    #[inline(always)]
    pub(super) unsafe fn apply(self, frame: Frame, high: usize) -> Option<Frame> {
        let mut base = frame.sp;
        if self.0 & FROM_FP != 0 {
            base = frame.fp;
            // A branch, not a conditional move: the load of the next frame depends on this sum, and the
            // branch is well predicted. An empty block of assembly keeps it a branch.
            // SAFETY: it does nothing.
            unsafe { std::arch::asm!("", options(nomem, nostack, preserves_flags)) };
        }
        let cfa = base.wrapping_add((self.0 & OFFSET_MASK) as usize);
        // Alignment is not checked: unaligned words can be read too.
        if cfa <= frame.sp || cfa > high {
            return None;
        }
        // SAFETY: `cfa` was checked above; the rest is as the caller ensures.
        unsafe { self.load(frame, cfa) }
    }

    /// # Safety
    ///
    /// The memory from [`MARGIN`] bytes below `frame.sp` up to `cfa` must be readable, and `cfa` must
    /// lie above `frame.sp`. At least the last 8 bytes below `cfa` must lie above the margin's end.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn load(self, frame: Frame, cfa: usize) -> Option<Frame> {
        // Stored relative to the margin, which saves a subtraction.
        let above = self.slot_bytes();
        // SAFETY: both are at most `MARGIN` bytes below `cfa`, and at least 8 bytes: only `NONE` and `END`,
        // which never get here, have a slot of 0.
        let (ra, fp) = unsafe { (word(cfa - 8), word(cfa - MARGIN + above)) };
        Some(Frame {
            ra,
            sp: cfa,
            // Where it was not saved, `fp` is the return address, which is readable without a test.
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
        // The slot can be too far away for any reasonable margin.
        if below > cfa - frame.sp {
            return None;
        }
        let saved = cfa - below;
        // SAFETY: it is between `sp` and `cfa`.
        let ra = super::arch::strip(unsafe { word(saved) });
        let mut fp = frame.fp;
        if self.0 & FP_SAVED != 0 {
            // SAFETY: it is in the margin at worst.
            fp = unsafe { word(saved - 8) };
        }
        Some(Frame { ra, sp: cfa, fp })
    }

    /// Whether the CFA is relative to the frame pointer.
    pub(super) fn is_from_fp(self) -> bool {
        self.0 & FROM_FP != 0
    }

    /// Where the return address was saved, and the frame pointer if it was, in a frame with this CFA.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn slots(self, cfa: usize) -> (usize, Option<usize>) {
        let above = self.slot_bytes();
        let fp = (above != MARGIN - 8).then(|| cfa - MARGIN + above);
        (cfa - 8, fp)
    }

    /// As above.
    #[cfg(target_arch = "aarch64")]
    pub(super) fn slots(self, cfa: usize) -> (usize, Option<usize>) {
        let saved = cfa - self.slot_bytes();
        (saved, (self.0 & FP_SAVED != 0).then(|| saved - 8))
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
    // SAFETY: as the caller ensures.
    unsafe { std::ptr::with_exposed_provenance::<usize>(address).read_unaligned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_arch = "x86_64")]
    const RA: i64 = -8;
    #[cfg(target_arch = "aarch64")]
    const RA: i64 = -24;

    fn new(base: Base, cfa: i64, ra: i64, fp: Option<i64>) -> Rule {
        Rule::new(base, cfa, ra, fp).unwrap_or(Rule::NONE)
    }

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
            let rule = new(Base::Sp, cfa, RA, None);
            let (ra, sp, fp, old_sp, old_fp) = apply(rule).unwrap();
            assert_eq!(sp, old_sp + cfa as usize);
            assert_eq!(ra, sp - RA.unsigned_abs() as usize);
            assert_eq!(fp, old_fp);

            let rule = new(Base::Fp, cfa, RA, Some(RA - 8));
            let (ra, sp, fp, _, old_fp) = apply(rule).unwrap();
            assert_eq!(sp, old_fp + cfa as usize);
            assert_eq!(ra, sp - RA.unsigned_abs() as usize);
            assert_eq!(fp, ra - 8);
        }
    }

    #[test]
    fn nothing_is_read_outside_of_the_stack() {
        assert_eq!(apply(new(Base::Sp, 513 * 8, RA, None)), None);
        assert_eq!(apply(new(Base::Fp, 425 * 8, RA, None)), None);
        assert!(apply(new(Base::Sp, 512 * 8, RA, None)).is_some());
        // A frame pointer below the stack pointer.
        let (_words, mut frame, high) = stack();
        frame.fp = frame.sp - 64;
        let rule = new(Base::Fp, 64, RA, None);
        // SAFETY: as in `apply`.
        assert!(unsafe { rule.apply(frame, high) }.is_none());
    }

    #[test]
    fn what_does_not_fit_is_no_rule() {
        for rule in [
            new(Base::Sp, 0, RA, None),
            new(Base::Sp, -16, RA, None),
            new(Base::Sp, 20, RA, None),
            new(Base::Sp, 1 << SLOT_SHIFT, RA, None),
            new(Base::Sp, 16, 8, None),
            new(Base::Sp, 16, i64::MIN, None),
            new(Base::Sp, 16, RA, Some(RA)),
            new(Base::Sp, 16, RA, Some(i64::MIN)),
            new(Base::Sp, i64::MAX, i64::MAX, Some(i64::MAX)),
        ] {
            assert_eq!(rule, Rule::NONE);
        }
        assert!(apply(Rule::NONE).is_none() && apply(Rule::END).is_none());
        assert!(Rule::END.is_end() && Rule::END.unloadable().is_end());
        assert!(!Rule::NONE.is_end() && !new(Base::Sp, 16, RA, None).is_end());
    }
}
