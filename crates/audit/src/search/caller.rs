//! The program's registers and stack pointer where it calls this library.
//!
//! A function of Rust cannot tell where its caller's frame ends: its own is of unknown size, and has padding with remains of
//! earlier calls. So these functions are entered by a stub.

/// Registers that functions preserve: as many as the stub stores.
#[cfg(target_arch = "x86_64")]
const PRESERVED: usize = 6;
/// The general ones, and the lower halves of eight vector registers.
#[cfg(target_arch = "aarch64")]
const PRESERVED: usize = 10 + 8;

/// What the stub of [`entry_point`] has pushed. The caller's frame begins behind it.
#[cfg(target_arch = "x86_64")]
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Caller {
    preserved: [u64; PRESERVED],
    /// `rax`: how many vector registers have arguments.
    _vectors: u64,
    /// The last first.
    arguments: [u64; 6],
    _return_address: u64,
}

/// What the stub of [`entry_point`] has pushed. The caller's frame begins behind it.
#[cfg(target_arch = "aarch64")]
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Caller {
    frame_pointer: u64,
    _return_address: u64,
    arguments: [u64; 8],
    preserved: [u64; PRESERVED],
}

impl Caller {
    /// The stack pointer in front of the call: everything below is not the program's.
    pub(super) fn stack_pointer(&self) -> u64 {
        std::ptr::from_ref(self).addr() as u64 + size_of::<Self>() as u64
    }

    /// The registers that may hold values of the program.
    pub(super) fn registers(&self) -> impl Iterator<Item = u64> {
        #[cfg(target_arch = "x86_64")]
        let other = [];
        #[cfg(target_arch = "aarch64")]
        let other = [self.frame_pointer];
        self.preserved.into_iter().chain(other)
    }

    /// An argument of the call, from 0 on, of those in registers.
    pub(crate) fn argument(&self, number: usize) -> u64 {
        match cfg!(target_arch = "x86_64") {
            true => self.arguments[self.arguments.len() - 1 - number],
            false => self.arguments[number],
        }
    }
}

/// Defines a function that disables [cancellation](crate::cancel), calls another, with a [`Caller`] and a number, and then
/// jumps to the function that this returns, with the registers and the stack as its caller left them.
macro_rules! entry_point {
    ($(#[$attribute:meta])* $name:ident, $before:path, $number:literal) => {
        $(#[$attribute])*
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            #[cfg(target_arch = "x86_64")]
            std::arch::naked_asm!(
                ".cfi_startproc",
                "push rdi",
                "push rsi",
                "push rdx",
                "push rcx",
                "push r8",
                "push r9",
                "push rax",
                "push r15",
                "push r14",
                "push r13",
                "push r12",
                "push rbp",
                "push rbx",
                "sub rsp, 16",
                ".cfi_adjust_cfa_offset 120",
                "call {disable}",
                "mov [rsp], rax",
                "lea rdi, [rsp + 16]",
                concat!("mov esi, ", $number),
                "call {before}",
                "mov [rsp + 8], rax",
                "mov rdi, [rsp]",
                // It may unwind.
                "call {restore}",
                "mov r11, [rsp + 8]",
                // What functions preserve is as it was.
                "add rsp, 64",
                "pop rax",
                "pop r9",
                "pop r8",
                "pop rcx",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                ".cfi_adjust_cfa_offset -120",
                "jmp r11",
                ".cfi_endproc",
                disable = sym $crate::cancel::disable_unless_shared,
                restore = sym $crate::cancel::restore,
                before = sym $before,
            );
            #[cfg(target_arch = "aarch64")]
            std::arch::naked_asm!(
                ".cfi_startproc",
                "stp x29, x30, [sp, #-224]!",
                ".cfi_def_cfa_offset 240",
                ".cfi_offset x29, -224",
                ".cfi_offset x30, -216",
                "stp x0, x1, [sp, #16]",
                "stp x2, x3, [sp, #32]",
                "stp x4, x5, [sp, #48]",
                "stp x6, x7, [sp, #64]",
                "stp x19, x20, [sp, #80]",
                "stp x21, x22, [sp, #96]",
                "stp x23, x24, [sp, #112]",
                "stp x25, x26, [sp, #128]",
                "stp x27, x28, [sp, #144]",
                "stp d8, d9, [sp, #160]",
                "stp d10, d11, [sp, #176]",
                "stp d12, d13, [sp, #192]",
                "stp d14, d15, [sp, #208]",
                "sub sp, sp, #16",
                "bl {disable}",
                "str x0, [sp]",
                "add x0, sp, #16",
                concat!("mov w1, #", $number),
                "bl {before}",
                "str x0, [sp, #8]",
                "ldr x0, [sp]",
                // It may unwind.
                "bl {restore}",
                "ldr x16, [sp, #8]",
                "add sp, sp, #16",
                "ldp x0, x1, [sp, #16]",
                "ldp x2, x3, [sp, #32]",
                "ldp x4, x5, [sp, #48]",
                "ldp x6, x7, [sp, #64]",
                "ldp x29, x30, [sp], #224",
                ".cfi_def_cfa_offset 0",
                ".cfi_restore x29",
                ".cfi_restore x30",
                "br x16",
                ".cfi_endproc",
                disable = sym $crate::cancel::disable_unless_shared,
                restore = sym $crate::cancel::restore,
                before = sym $before,
            );
        }
    };
}
pub(crate) use entry_point;

#[cfg(test)]
mod tests {
    use std::ffi::c_void;
    use std::mem::transmute;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::Caller;

    static SEEN: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

    unsafe extern "C" fn difference(first: u64, second: u64) -> u64 {
        first - second
    }

    unsafe extern "C" fn before(caller: &Caller, number: u32) -> *const c_void {
        SEEN[0].store(caller.stack_pointer(), Relaxed);
        SEEN[1].store(caller.argument(0), Relaxed);
        SEEN[2].store(caller.argument(1), Relaxed);
        SEEN[3].store(number.into(), Relaxed);
        difference as *const c_void
    }

    entry_point! { stub, before, 7 }

    #[test]
    fn a_stub_passes_arguments_and_the_stack_pointer() {
        let local = 0_u8;
        // SAFETY: the stub jumps to a function of this signature.
        let result = unsafe {
            let stub = stub as *const c_void;
            transmute::<*const c_void, unsafe extern "C" fn(u64, u64) -> u64>(stub)(50, 8)
        };
        assert_eq!(result, 42);
        let seen = SEEN.each_ref().map(|value| value.load(Relaxed));
        assert_eq!(seen[1..], [50, 8, 7]);
        let local = (&raw const local).addr() as u64;
        assert!(
            seen[0] <= local && local - seen[0] < 4096,
            "{seen:x?} {local:x}"
        );
    }
}
