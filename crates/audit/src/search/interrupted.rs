//! What a signal interrupted: the program's registers, and where its stack ends.
//!
//! Below the interrupted stack pointer are the kernel's signal frame and the frames of the handler. Both have padding with
//! remains of earlier calls, and none of it is the program's.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::memory::Memory;
use super::stacks::RED_ZONE;

/// The general registers, which [`store_registers`] stores first.
#[cfg(target_arch = "x86_64")]
pub(super) const GENERAL: usize = 15;
#[cfg(target_arch = "aarch64")]
pub(super) const GENERAL: usize = 31;

/// The general register that has a system call's result.
#[cfg(target_arch = "x86_64")]
pub(super) const RESULT: usize = libc::REG_RAX as usize;
#[cfg(target_arch = "aarch64")]
pub(super) const RESULT: usize = 0;

/// The addresses of a signal stack.
pub(super) fn range(stack: &libc::stack_t) -> Range<u64> {
    let start = stack.ss_sp.addr() as u64;
    start..start.saturating_add(stack.ss_size as u64)
}

/// What is not the program's of the alternate stack. The kernel begins at its end, unless the thread was on it already.
pub(super) fn alternate(stack: &libc::stack_t, inside: u64, interrupted: u64) -> Range<u64> {
    let all = range(stack);
    match (all.contains(&inside), all.contains(&interrupted)) {
        (false, _) => 0..0,
        (true, false) => all,
        (true, true) => all.start..interrupted.saturating_sub(RED_ZONE).max(all.start),
    }
}

/// Whether this is the instruction behind a system call.
pub(super) fn is_in_system_call(memory: &Memory, next: u64) -> bool {
    let call = next.checked_sub(SYSTEM_CALL.len() as u64);
    call.is_some_and(|call| is_system_call(memory, call))
}

/// Whether this is the instruction of a system call. A call that is restarted behind the handler has it as its next one.
pub(super) fn is_system_call(memory: &Memory, at: u64) -> bool {
    let mut instruction = [0; SYSTEM_CALL.len()];
    memory.read(at, &mut instruction) == instruction.len() && instruction == SYSTEM_CALL
}

/// `syscall`
#[cfg(target_arch = "x86_64")]
const SYSTEM_CALL: [u8; 2] = [0x0f, 0x05];
/// `svc 0`
#[cfg(target_arch = "aarch64")]
const SYSTEM_CALL: [u8; 4] = 0xd400_0001_u32.to_le_bytes();

#[cfg(target_arch = "x86_64")]
pub(super) fn stack_pointer(context: &libc::ucontext_t) -> u64 {
    context.uc_mcontext.gregs[libc::REG_RSP as usize].cast_unsigned()
}

#[cfg(target_arch = "x86_64")]
pub(super) fn instruction(context: &libc::ucontext_t) -> u64 {
    context.uc_mcontext.gregs[libc::REG_RIP as usize].cast_unsigned()
}

/// Stores the general registers, and then the vector registers. Async-signal-safe.
#[cfg(target_arch = "x86_64")]
pub(super) fn store_registers(context: &libc::ucontext_t, registers: &[AtomicU64]) {
    let (general, vectors) = registers.split_at(GENERAL);
    for (register, value) in general.iter().zip(&context.uc_mcontext.gregs) {
        register.store(value.cast_unsigned(), Ordering::Relaxed);
    }
    // SAFETY: null, or the kernel's structure.
    let values = unsafe { context.uc_mcontext.fpregs.as_ref() };
    for (at, register) in vectors.iter().enumerate() {
        let value = values.and_then(|values| values._xmm.get(at / 2));
        let half = value.map_or(0, |vector| {
            let [low, high] = [0, 1].map(|word| u64::from(vector.element[at % 2 * 2 + word]));
            low | high << 32
        });
        register.store(half, Ordering::Relaxed);
    }
}

#[cfg(target_arch = "aarch64")]
pub(super) fn stack_pointer(context: &libc::ucontext_t) -> u64 {
    context.uc_mcontext.sp
}

#[cfg(target_arch = "aarch64")]
pub(super) fn instruction(context: &libc::ucontext_t) -> u64 {
    context.uc_mcontext.pc
}

/// Stores the general registers. Async-signal-safe.
#[cfg(target_arch = "aarch64")]
pub(super) fn store_registers(context: &libc::ucontext_t, registers: &[AtomicU64]) {
    let (general, other) = registers.split_at(GENERAL);
    for (register, value) in general.iter().zip(&context.uc_mcontext.regs) {
        register.store(*value, Ordering::Relaxed);
    }
    for register in other {
        register.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::alternate;

    #[test]
    fn of_an_alternate_stack_the_handler_has_what_the_program_has_not() {
        let stack = libc::stack_t {
            ss_sp: std::ptr::without_provenance_mut(0x1000),
            ss_flags: 0,
            ss_size: 0x1000,
        };
        // The handler is not on it, is on it alone, and on top of a handler of the program.
        assert_eq!(alternate(&stack, 0x5000, 0x6000), 0..0);
        assert_eq!(alternate(&stack, 0x1800, 0x6000), 0x1000..0x2000);
        assert_eq!(alternate(&stack, 0x1800, 0x1c00), 0x1000..0x1b80);
    }
}
