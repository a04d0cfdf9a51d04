//! Computes a rule from the call frame information (`.eh_frame`) that compilers emit.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameOffset, EndianSlice, FrameDescriptionEntry,
    NativeEndian, Register, RegisterRule, UnwindContext, UnwindContextStorage, UnwindSection,
    UnwindTableRow,
};

use super::modules;
use super::rule::{Base, Rule};

#[cfg(target_arch = "x86_64")]
const REGISTERS: [Register; 3] = [gimli::X86_64::RSP, gimli::X86_64::RBP, gimli::X86_64::RA];
#[cfg(target_arch = "aarch64")]
const REGISTERS: [Register; 3] = [gimli::AArch64::SP, gimli::AArch64::X29, gimli::AArch64::X30];

/// Stack pointer.
const SP: Register = REGISTERS[0];
/// Frame pointer.
const FP: Register = REGISTERS[1];
/// Return address.
const RA: Register = REGISTERS[2];

type Reader = EndianSlice<'static, NativeEndian>;

/// Storage on the stack for the rules of as many registers as functions save. Where it is too small,
/// `backtrace` captures the stack.
struct OnStack;

impl UnwindContextStorage<usize> for OnStack {
    type Rules = [(Register, RegisterRule<usize>); 40];
    type Stack = [UnwindTableRow<usize, Self>; 4];
}

/// What the unwinder returns with an entry.
#[derive(Default)]
#[repr(C)]
struct Bases {
    text: usize,
    data: usize,
    function: usize,
}

unsafe extern "C" {
    /// Finds the entry for the code at this address. It is a function of libgcc, whose unwinder
    /// `backtrace` uses, so it finds what that unwinder finds.
    fn _Unwind_Find_FDE(address: usize, bases: *mut Bases) -> *const u8;
}

/// The rule for the frame that continues at this return address.
#[cold]
pub(super) fn rule(ra: usize) -> Rule {
    // The call is before the return address, and may be the last instruction of its function.
    let Some(call) = ra.checked_sub(1) else {
        return Rule::END;
    };
    let permanent = modules::is_permanent(call);
    if !permanent && !modules::contains(call) {
        // Code that was generated at run time can change without notice.
        return Rule::NONE.unloadable();
    }
    let mut bases = Bases::default();
    // SAFETY: `bases` can be written to.
    let entry = unsafe { _Unwind_Find_FDE(call, &mut bases) };
    let rule = if !entry.is_null() {
        // SAFETY: the unwinder returns an entry of a module, and a function of that module has not yet
        // returned on this thread, so that it stays loaded.
        unsafe { read(entry, &bases, call) }.unwrap_or(Rule::NONE)
    } else if permanent && !super::arch::returns_from_signal(ra) {
        // The unwinder reports such a frame, and stops there.
        Rule::END
    } else {
        Rule::NONE
    };
    match permanent {
        true => rule,
        false => rule.unloadable(),
    }
}

/// The rule for the code at `address`, from the entry that covers it.
///
/// # Safety
///
/// `entry` must be a frame description entry in `.eh_frame`, together with the common information entry
/// that it refers to, and stay loaded during the call.
unsafe fn read(entry: *const u8, bases: &Bases, address: usize) -> Option<Rule> {
    // SAFETY: an entry starts with its length and the distance to its common information entry.
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
    // SAFETY: they are parts of one section. The lifetime is longer than the caller ensures, but nothing
    // that borrows from it leaves this function.
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

/// The rule of a row of the unwind table, if it consists of plain offsets.
fn plain(row: &UnwindTableRow<usize, OnStack>) -> Option<Rule> {
    let ra = match row.register(RA) {
        Some(RegisterRule::Offset(offset)) => offset,
        Some(RegisterRule::Undefined) => return Some(Rule::END),
        // On AArch64: a leaf function, which only a signal interrupts.
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
    Rule::new(base, cfa, ra, fp)
}

/// The length of an entry with its length field; `None` at the end of the section, and for entries of
/// more than 4 GiB, which have another format.
///
/// # Safety
///
/// As in [`number`].
unsafe fn length(entry: *const u8) -> Option<usize> {
    // SAFETY: as the caller ensures.
    match unsafe { number(entry) } {
        0 | u32::MAX => None,
        length => Some(length as usize + 4),
    }
}

/// # Safety
///
/// There must be 4 readable bytes.
unsafe fn number(at: *const u8) -> u32 {
    // SAFETY: as the caller ensures.
    unsafe { at.cast::<u32>().read_unaligned() }
}
