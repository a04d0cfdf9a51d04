//! What differs between the architectures besides the form of rules: the entry functions, and how a
//! signal frame is recognized.
//!
//! A walk must start with the registers at a known point of the code. A compiled function can read them,
//! but would also need the rule for that point. The functions here are naked, without a frame: they find
//! their caller's registers and jump to a function that gets them as arguments.

/// Puts the stack pointer, the frame pointer and the instruction pointer that the caller has after the call
/// into the third, fourth and fifth argument, and jumps.
#[cfg(target_arch = "x86_64")]
macro_rules! jump_with_registers {
    () => {
        "lea rdx, [rsp + 8]
         mov rcx, rbp
         mov r8, [rsp]
         jmp {target}"
    };
}

/// Puts the stack pointer, the frame pointer and the instruction pointer that the caller has after the call
/// into the third, fourth and fifth argument, and jumps. Begins with `bti c`, for calls through a pointer.
#[cfg(target_arch = "aarch64")]
macro_rules! jump_with_registers {
    () => {
        "hint #34
         mov x2, sp
         mov x3, x29
         mov x4, x30
         b {target}"
    };
}

/// Defines an entry function that calls `$walk` with the caller's frame.
macro_rules! entry {
    ($name:ident, $walk:path) => {
        mod $name {
            use super::*;

            unsafe extern "C" fn target(
                frames: *mut usize,
                len: usize,
                sp: usize,
                fp: usize,
                ra: usize,
            ) -> usize {
                // SAFETY: as the caller of the entry function ensures.
                let frames = unsafe { std::slice::from_raw_parts_mut(frames, len) };
                // SAFETY: these are the registers of the function that called the entry function.
                unsafe { $walk(frames, Frame { ra, sp, fp }) }
            }

            /// # Safety
            ///
            /// `frames` must point to `len` writable words.
            #[unsafe(naked)]
            pub(super) unsafe extern "C" fn $name(frames: *mut usize, len: usize) -> usize {
                std::arch::naked_asm!(jump_with_registers!(), target = sym target)
            }
        }
        use $name::$name;
    };
}

pub(super) use {entry, jump_with_registers};

/// Removes the pointer authentication code that a return address may carry on the stack.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub(super) fn strip(ra: usize) -> usize {
    let mut stripped = ra;
    // `xpaclri`, a no-op on processors without pointer authentication. It works on x30 alone.
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

/// Whether the code at this address is what the kernel makes signal handlers return to. Like the unwinder,
/// this recognizes it by its instructions.
pub(super) fn returns_from_signal(address: usize) -> bool {
    #[cfg(target_arch = "x86_64")]
    // mov rax, 15; syscall
    const CODE: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05];
    #[cfg(target_arch = "aarch64")]
    // mov x8, 139; svc 0
    const CODE: [u8; 8] = [0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4];
    let code = std::ptr::with_exposed_provenance::<u8>(address);
    // Byte by byte: the code may end before.
    CODE.iter().enumerate().all(|(at, &byte)| {
        // SAFETY: code of a module continues at a return address, and after the first bytes of an
        // instruction.
        byte == unsafe { code.wrapping_add(at).read_volatile() }
    })
}
