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
const GENERAL: usize = 15;
#[cfg(target_arch = "aarch64")]
const GENERAL: usize = 31;

/// Words of the general and the vector registers, at least.
#[cfg(target_arch = "x86_64")]
pub(super) const REGISTERS: usize = 64;
#[cfg(target_arch = "aarch64")]
pub(super) const REGISTERS: usize = GENERAL + 2 * VECTORS;

/// The registers in which a function that makes a system call may have values of its callers, of those that [`store_registers`]
/// has stored: general ones, and vector registers that survive the call of a function.
#[cfg(target_arch = "x86_64")]
pub(super) fn in_system_call(registers: &[u64; REGISTERS]) -> impl Iterator<Item = u64> {
    registers[..GENERAL].iter().copied()
}

/// The registers in which a function that makes a system call may have values of its callers, of those that [`store_registers`]
/// has stored: general ones, and vector registers that survive the call of a function, which are the lower halves of eight.
#[cfg(target_arch = "aarch64")]
pub(super) fn in_system_call(registers: &[u64; REGISTERS]) -> impl Iterator<Item = u64> {
    let (general, vectors) = registers.split_at(GENERAL);
    let preserved = vectors[2 * 8..2 * 16].iter().step_by(2);
    general.iter().chain(preserved).copied()
}

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
pub(super) fn store_registers(context: &libc::ucontext_t, registers: &[AtomicU64; REGISTERS]) {
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

/// Vector registers of 16 bytes. Where the processor has longer ones (SVE), these are the first 16 bytes of each.
#[cfg(target_arch = "aarch64")]
const VECTORS: usize = 32;

/// `struct fpsimd_context`: the first record behind the general registers.
#[cfg(target_arch = "aarch64")]
#[repr(C, align(16))]
struct Vectors {
    /// [`VECTORS_HEAD`]
    head: u64,
    /// The status and control registers.
    _status: u64,
    values: [[u64; 2]; VECTORS],
}

/// The number by which the kernel marks the record, and behind it the record's size: the first word of the record. Every frame
/// of a signal has it.
#[cfg(target_arch = "aarch64")]
pub(super) const VECTORS_HEAD: u64 = 0x4650_8001 | (size_of::<Vectors>() as u64) << 32;

/// The vector registers, if the kernel has stored them. They are the first record, and it always does.
#[cfg(target_arch = "aarch64")]
fn vectors(context: &libc::ucontext_t) -> Option<&Vectors> {
    /// Bytes of the records.
    const RECORDS: usize = 4096;
    let context = &raw const context.uc_mcontext;
    // SAFETY: the records are the last part of the structure, and longer than this one, which has no invalid values.
    let vectors = unsafe {
        let records = context.add(1).byte_sub(RECORDS);
        &*records.cast::<Vectors>()
    };
    (vectors.head == VECTORS_HEAD).then_some(vectors)
}

/// Stores the general registers, and then the vector registers. Async-signal-safe.
#[cfg(target_arch = "aarch64")]
pub(super) fn store_registers(context: &libc::ucontext_t, registers: &[AtomicU64; REGISTERS]) {
    let (general, other) = registers.split_at(GENERAL);
    for (register, value) in general.iter().zip(&context.uc_mcontext.regs) {
        register.store(*value, Ordering::Relaxed);
    }
    let values = vectors(context).map(|vectors| vectors.values.as_flattened());
    for (at, register) in other.iter().enumerate() {
        let value = values.map_or(0, |values| values[at]);
        register.store(value, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::{c_int, c_void};
    use std::mem::zeroed;
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

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
        let live = 0x1c00 - RED_ZONE;
        assert_eq!(alternate(&stack, 0x1800, 0x1c00), 0x1000..live);
    }

    static STORED: [AtomicU64; REGISTERS] = [const { AtomicU64::new(0) }; REGISTERS];

    extern "C" fn store(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
        // SAFETY: the kernel's structure.
        store_registers(unsafe { &*context.cast() }, &STORED);
    }

    const GENERAL_VALUE: u64 = 0x1234_5678_9abc_def0;
    const VECTOR_VALUE: u64 = 0xfedc_ba98_7654_3210;

    /// Sends the signal to the calling thread, with one value in a general register and one in the lower half of a vector register,
    /// which functions preserve where the architecture has such vector registers.
    fn interrupt(signal: c_int) {
        // SAFETY: no requirements.
        let (process, thread) = unsafe { (libc::getpid(), cuguard_sync::own_thread::id()) };
        // SAFETY: `tgkill` changes the result register and those that the instruction overwrites, and the signal's handler none.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            std::arch::asm!(
                "movq xmm9, {vector}",
                "xor {vector:e}, {vector:e}",
                "syscall",
                vector = inout(reg) VECTOR_VALUE => _,
                in("r12") GENERAL_VALUE,
                inlateout("rax") libc::SYS_tgkill => _,
                in("rdi") process,
                in("rsi") thread,
                in("rdx") signal,
                out("rcx") _,
                out("r11") _,
                out("xmm9") _,
            );
            #[cfg(target_arch = "aarch64")]
            std::arch::asm!(
                "fmov d9, {vector}",
                "mov {vector}, xzr",
                "svc 0",
                vector = inout(reg) VECTOR_VALUE => _,
                in("x20") GENERAL_VALUE,
                in("x8") libc::SYS_tgkill,
                inlateout("x0") process => _,
                in("x1") thread,
                in("x2") signal,
                out("v9") _,
            );
        }
    }

    #[test]
    fn the_registers_of_a_system_call_that_a_signal_interrupted() {
        let signal = libc::SIGRTMIN() + 1;
        // SAFETY: zero is valid; the handler only stores to atomic variables. The call restores what was there.
        unsafe {
            let mut action: libc::sigaction = zeroed();
            let mut before: libc::sigaction = zeroed();
            action.sa_sigaction = store as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO;
            assert_eq!(libc::sigaction(signal, &action, &mut before), 0);
            interrupt(signal);
            libc::sigaction(signal, &before, std::ptr::null_mut());
        }
        let stored = STORED.each_ref().map(|register| register.load(Relaxed));
        assert!(stored[..GENERAL].contains(&GENERAL_VALUE), "{stored:x?}");
        assert!(stored[GENERAL..].contains(&VECTOR_VALUE), "{stored:x?}");
        let kept: Vec<u64> = in_system_call(&stored).collect();
        assert!(kept.contains(&GENERAL_VALUE), "{kept:x?}");
        // x86-64 has no vector registers that functions preserve.
        let is_kept = cfg!(target_arch = "aarch64");
        assert_eq!(kept.contains(&VECTOR_VALUE), is_kept, "{kept:x?}");
    }
}
