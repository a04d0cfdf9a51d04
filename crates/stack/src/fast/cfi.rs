//! Works out a rule from the call frame information that compilers leave next to the code.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameOffset, EndianSlice, FrameDescriptionEntry,
    NativeEndian, Register, RegisterRule, UnwindContext, UnwindContextStorage, UnwindSection,
    UnwindTableRow,
};

use super::modules;
use super::rule::{Base, Rule};

#[cfg(target_arch = "x86_64")]
mod registers {
    use gimli::{Register, X86_64};
    pub(super) const SP: Register = X86_64::RSP;
    pub(super) const FP: Register = X86_64::RBP;
    pub(super) const RA: Register = X86_64::RA;
}

#[cfg(target_arch = "aarch64")]
mod registers {
    use gimli::{AArch64, Register};
    pub(super) const SP: Register = AArch64::SP;
    pub(super) const FP: Register = AArch64::X29;
    pub(super) const RA: Register = AArch64::X30;
}

use registers::{FP, RA, SP};

type Reader = EndianSlice<'static, NativeEndian>;

/// Place for the rules on the stack, for as many registers as functions save. Where it is not
/// enough, the stack is left to `backtrace`.
struct OnStack;

impl UnwindContextStorage<usize> for OnStack {
    type Rules = [(Register, RegisterRule<usize>); 40];
    type Stack = [UnwindTableRow<usize, Self>; 4];
}

/// What the unwinder says along with an entry.
#[repr(C)]
struct Bases {
    text: usize,
    data: usize,
    function: usize,
}

unsafe extern "C" {
    /// The entry for the code at this address. It is libgcc's, which `backtrace` unwinds by, and
    /// knows everything that the unwinder itself knows.
    fn _Unwind_Find_FDE(address: usize, bases: *mut Bases) -> *const u8;
}

/// The rule for the frame that goes on at this return address.
#[cold]
pub(super) fn rule(ra: usize) -> Rule {
    // The call lies before the return address, and may be the last thing in its function.
    let Some(call) = ra.checked_sub(1) else {
        return Rule::END;
    };
    let stays = modules::stays(call);
    if !stays && !modules::contains(call) {
        // Whoever made this code can change it without telling.
        return Rule::SLOW.volatile();
    }
    let mut bases = Bases {
        text: 0,
        data: 0,
        function: 0,
    };
    // SAFETY: the place for the answer is there.
    let entry = unsafe { _Unwind_Find_FDE(call, &mut bases) };
    let rule = if !entry.is_null() {
        // SAFETY: the unwinder answers with an entry of a module, and that module's code is on the
        // stack of this thread.
        unsafe { read(entry, &bases, call) }.unwrap_or(Rule::SLOW)
    } else if stays && !super::enter::returns_from_signal(ra) {
        // The unwinder reports such a frame, and goes no further.
        Rule::END
    } else {
        Rule::SLOW
    };
    if stays { rule } else { rule.volatile() }
}

/// The rule for the code at `address`, from the entry that covers it.
///
/// # Safety
///
/// `entry` must be a frame description entry in `.eh_frame`, with the common entry that it refers
/// to, and stay for the length of the call.
unsafe fn read(entry: *const u8, bases: &Bases, address: usize) -> Option<Rule> {
    // SAFETY: an entry starts with its length and the distance to its common entry.
    let (length, distance) = unsafe { (length(entry)?, number(entry.wrapping_add(4))) };
    let common = entry.wrapping_add(4).wrapping_sub(distance as usize);
    // SAFETY: the entry refers to it.
    let common_length = unsafe { self::length(common)? };
    // Both entries, and all between them. Either may come first.
    let (start, end) = (
        common.min(entry),
        common
            .wrapping_add(common_length)
            .max(entry.wrapping_add(length)),
    );
    let size = (end as usize).wrapping_sub(start as usize);
    if size > isize::MAX as usize {
        return None;
    }
    // SAFETY: they are parts of one section. The lifetime is longer than promised, but nothing
    // that is made from it leaves this function.
    let section: &'static [u8] = unsafe { std::slice::from_raw_parts(start, size) };
    let mut section = EhFrame::new(section, NativeEndian);
    if cfg!(target_arch = "aarch64") {
        section.set_vendor(gimli::Vendor::AArch64);
    }
    let addresses = BaseAddresses::default()
        .set_eh_frame(start as u64)
        .set_text(bases.text as u64)
        .set_got(bases.data as u64);
    let offset = EhFrameOffset(entry as usize - start as usize);
    let entry: FrameDescriptionEntry<Reader> = section
        .fde_from_offset(&addresses, offset, EhFrame::cie_from_offset)
        .ok()?;
    if entry.is_signal_trampoline() || entry.cie().return_address_register() != RA {
        return None;
    }
    let mut context = UnwindContext::<usize, OnStack>::new_in();
    let row = entry
        .unwind_info_for_address(&section, &addresses, &mut context, address as u64)
        .ok()?;
    plain(row)
}

/// The rule that a row of the unwind table says, if it is one of plain offsets.
fn plain(row: &UnwindTableRow<usize, OnStack>) -> Option<Rule> {
    let ra = match row.register(RA) {
        Some(RegisterRule::Offset(offset)) => offset,
        Some(RegisterRule::Undefined) => return Some(Rule::END),
        // On AArch64: a function that calls nobody. It has no place but inside of a signal.
        _ => return None,
    };
    let (base, cfa) = match *row.cfa() {
        CfaRule::RegisterAndOffset { register, offset } if register == SP => (Base::Sp, offset),
        CfaRule::RegisterAndOffset { register, offset } if register == FP => (Base::Fp, offset),
        _ => return None,
    };
    let fp = match row.register(FP) {
        None | Some(RegisterRule::SameValue) => None,
        Some(RegisterRule::Offset(offset)) => Some(offset),
        _ => return None,
    };
    // A stack pointer that is not the CFA: code that switches stacks.
    if row.register(SP).is_some() {
        return None;
    }
    Some(Rule::new(base, cfa, ra, fp))
}

/// The length of an entry with its length field; `None` for the end of the section, and for entries
/// of more than 4 GiB, which have another form.
///
/// # Safety
///
/// As in [`number`].
unsafe fn length(entry: *const u8) -> Option<usize> {
    // SAFETY: the caller's word.
    match unsafe { number(entry) } {
        0 | u32::MAX => None,
        length => Some(length as usize + 4),
    }
}

/// # Safety
///
/// There must be 4 readable bytes.
unsafe fn number(at: *const u8) -> u32 {
    // SAFETY: the caller's word.
    unsafe { at.cast::<u32>().read_unaligned() }
}
