//! What a signal interrupted: the program's registers, and where its stack ends.
//!
//! Below the interrupted stack pointer are the kernel's signal frame and the frames of the handler. Both have padding with
//! remains of earlier calls, and none of it is the program's.

use std::ops::Range;

use super::stacks::RED_ZONE;

/// General and vector registers.
pub(super) const REGISTERS: usize = 64;

/// The state of a thread that a signal interrupted.
pub(super) struct Interrupted {
    pub(super) stack_pointer: u64,
    pub(super) registers: [u64; REGISTERS],
    /// The part of the alternate signal stack that the handler and its signal frame are on.
    pub(super) alternate: Range<u64>,
}

impl Interrupted {
    /// Of a handler's context. `inside` is an address in the handler's own frame. Async-signal-safe.
    #[inline(never)]
    pub(super) fn new(context: &libc::ucontext_t, inside: u64) -> Interrupted {
        let stack_pointer = stack_pointer(context);
        let mut values = [0; REGISTERS];
        registers(context, &mut values);
        Interrupted {
            stack_pointer,
            registers: values,
            alternate: alternate(&context.uc_stack, inside, stack_pointer),
        }
    }
}

/// What is not the program's of the alternate stack. The kernel begins at its end, unless the thread was on it already.
fn alternate(stack: &libc::stack_t, inside: u64, interrupted: u64) -> Range<u64> {
    let start = stack.ss_sp.addr() as u64;
    let all = start..start.saturating_add(stack.ss_size as u64);
    match (all.contains(&inside), all.contains(&interrupted)) {
        (false, _) => 0..0,
        (true, false) => all,
        (true, true) => start..interrupted.saturating_sub(RED_ZONE).max(start),
    }
}

/// Whether a signal interrupted a system call. Its caller is a function of the C library, and vector registers do not
/// survive the call of a function: what they hold are remains.
#[cfg(target_arch = "x86_64")]
fn is_in_system_call(context: &libc::ucontext_t) -> bool {
    let next = context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize;
    if next & 0xfff < 2 {
        return false;
    }
    // SAFETY: the code before the next instruction, on the same page.
    let instruction = unsafe { std::ptr::with_exposed_provenance::<[u8; 2]>(next - 2).read() };
    // `syscall`.
    instruction == [0x0f, 0x05]
}

#[cfg(target_arch = "x86_64")]
fn stack_pointer(context: &libc::ucontext_t) -> u64 {
    context.uc_mcontext.gregs[libc::REG_RSP as usize].cast_unsigned()
}

#[cfg(target_arch = "x86_64")]
fn registers(context: &libc::ucontext_t, values: &mut [u64; REGISTERS]) {
    let mut values = values.iter_mut();
    let general = &context.uc_mcontext.gregs[..15];
    for (general, value) in general.iter().zip(&mut values) {
        *value = general.cast_unsigned();
    }
    if context.uc_mcontext.fpregs.is_null() || is_in_system_call(context) {
        return;
    }
    // SAFETY: the kernel's structure.
    let vectors = unsafe { &(*context.uc_mcontext.fpregs)._xmm };
    let halves = vectors.iter().flat_map(|vector| vector.element.chunks(2));
    for (half, value) in halves.zip(values) {
        *value = u64::from(half[0]) | u64::from(half[1]) << 32;
    }
}

#[cfg(target_arch = "aarch64")]
fn stack_pointer(context: &libc::ucontext_t) -> u64 {
    context.uc_mcontext.sp
}

#[cfg(target_arch = "aarch64")]
fn registers(context: &libc::ucontext_t, values: &mut [u64; REGISTERS]) {
    for (register, value) in context.uc_mcontext.regs.iter().zip(values) {
        *value = *register;
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
