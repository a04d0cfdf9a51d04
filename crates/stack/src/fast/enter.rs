//! What differs between the architectures beside the form of rules: the way in, and what a frame of
//! a signal looks like.
//!
//! A walk must start with the registers of a known place in the code. In a function that a compiler
//! has made, they can be read, but the rule for that place would be needed as well. The functions
//! here have no frame at all: what they find in the registers is what their caller has, and they
//! jump to a function that gets it as arguments.

use std::arch::naked_asm;

use super::{walk, walk_with_backtrace, walk_with_rules};

#[cfg(target_arch = "x86_64")]
macro_rules! enter {
    ($name:ident, $target:ident) => {
        /// Passes its arguments on, with the stack pointer, the frame pointer and the instruction
        /// pointer that the caller will have after the call.
        ///
        /// # Safety
        ///
        /// `frames` must point to `len` writable words.
        #[unsafe(naked)]
        pub(super) unsafe extern "C" fn $name(frames: *mut usize, len: usize) -> usize {
            naked_asm!(
                "lea rdx, [rsp + 8]",
                "mov rcx, rbp",
                "mov r8, [rsp]",
                "jmp {target}",
                target = sym $target,
            )
        }
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! enter {
    ($name:ident, $target:ident) => {
        /// Passes its arguments on, with the stack pointer, the frame pointer and the instruction
        /// pointer that the caller will have after the call.
        ///
        /// # Safety
        ///
        /// `frames` must point to `len` writable words.
        #[unsafe(naked)]
        pub(super) unsafe extern "C" fn $name(frames: *mut usize, len: usize) -> usize {
            naked_asm!(
                // `bti c`, for callers that come by a pointer.
                "hint #34",
                "mov x2, sp",
                "mov x3, x29",
                "mov x4, x30",
                "b {target}",
                target = sym $target,
            )
        }
    };
}

enter!(enter, walk);
enter!(enter_with_backtrace, walk_with_backtrace);
enter!(enter_with_rules, walk_with_rules);

/// A return address without the signature that it may carry on the stack.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(super) fn strip(ra: usize) -> usize {
    let mut stripped = ra;
    // `xpaclri`, which does nothing on processors without signatures. It works on x30 alone.
    // SAFETY: it changes the one register.
    unsafe {
        std::arch::asm!(
            "hint #7",
            inout("x30") stripped,
            options(nomem, nostack, preserves_flags, pure),
        );
    }
    stripped
}

/// Whether the code at this address is the one that the kernel lets signal handlers return to. The
/// unwinder knows it by its instructions where nothing else tells.
pub(super) fn returns_from_signal(address: usize) -> bool {
    #[cfg(target_arch = "x86_64")]
    // mov rax, 15; syscall
    const CODE: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
    #[cfg(target_arch = "aarch64")]
    // mov x8, 139; svc 0
    const CODE: [u8; 8] = [0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4];
    let code = std::ptr::with_exposed_provenance::<u8>(address);
    // One byte after the other: the code may end before.
    CODE.iter().enumerate().all(|(at, &byte)| {
        // SAFETY: code of a module goes on at a return address, and after the bytes that are the
        // first part of an instruction.
        byte == unsafe { code.wrapping_add(at).read_volatile() }
    })
}
