//! What a thread was at: its registers, and which part of its alternate signal stack is not the program's.
//!
//! A signal handler stores it in a table, word by word, and the searching thread reads it there. The handler makes no copy on
//! its stack: an alternate one may have a few hundred bytes left below the kernel's signal frame.

use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::interrupted::{self, REGISTERS};
use super::memory::Memory;

/// What a thread was at, as the searching thread reads it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct ThreadContext {
    /// `pthread_self()`
    pub(super) pointer: u64,
    /// The next instruction of the code that a signal interrupted; zero where none did.
    instruction: u64,
    registers: [u64; REGISTERS],
    /// The part of the alternate signal stack that is the kernel's and this library's.
    pub(super) alternate: Range<u64>,
    /// Whether the program's code was on its alternate stack: a handler, which has interrupted frames elsewhere.
    pub(super) is_on_alternate: bool,
}

impl ThreadContext {
    /// The registers that may hold values of the program.
    ///
    /// Most vector registers do not survive the call of a function, and a system call is made in one, of the C library: they
    /// hold remains then. The code is read here rather than in the handler: code that can only be executed cannot be read.
    pub(super) fn registers(&self, memory: &Memory) -> Vec<u64> {
        let is_in_system_call = interrupted::is_in_system_call(memory, self.instruction)
            || interrupted::is_system_call(memory, self.instruction);
        match is_in_system_call {
            true => interrupted::in_system_call(&self.registers).collect(),
            false => self.registers.to_vec(),
        }
    }

    /// Whether the thread was in a system call that returns `EINTR`, because it is not restarted after a signal.
    pub(super) fn sees_interruption(&self, memory: &Memory) -> bool {
        let result = self.registers[interrupted::RESULT].cast_signed();
        result == -i64::from(libc::EINTR)
            && interrupted::is_in_system_call(memory, self.instruction)
    }
}

/// [`ThreadContext`] in a table.
pub(super) struct SharedContext {
    pointer: AtomicU64,
    instruction: AtomicU64,
    registers: [AtomicU64; REGISTERS],
    alternate: [AtomicU64; 2],
    is_on_alternate: AtomicBool,
}

impl SharedContext {
    pub(super) const fn new() -> SharedContext {
        SharedContext {
            pointer: AtomicU64::new(0),
            instruction: AtomicU64::new(0),
            registers: [const { AtomicU64::new(0) }; REGISTERS],
            alternate: [const { AtomicU64::new(0) }; 2],
            is_on_alternate: AtomicBool::new(false),
        }
    }

    /// Stores what a signal interrupted. `inside` is an address in the handler's own frame. Async-signal-safe.
    #[inline(never)]
    pub(super) fn store_interrupted(&self, context: &libc::ucontext_t, inside: u64) {
        let stack_pointer = interrupted::stack_pointer(context);
        let stack = &context.uc_stack;
        let alternate = interrupted::alternate(stack, inside, stack_pointer);
        let is_on_alternate = interrupted::range(stack).contains(&stack_pointer);
        self.store(
            interrupted::instruction(context),
            alternate,
            is_on_alternate,
        );
        interrupted::store_registers(context, &self.registers);
    }

    /// Stores that the calling thread called this library, with its frame at this address. Async-signal-safe.
    pub(super) fn store_call(&self, frame: u64, registers: impl IntoIterator<Item = u64>) {
        let mut stack = libc::stack_t {
            ss_sp: ptr::null_mut(),
            ss_flags: 0,
            ss_size: 0,
        };
        // SAFETY: the structure can be written to.
        let code = unsafe { libc::sigaltstack(ptr::null(), &mut stack) };
        let is_on_alternate = code == 0 && stack.ss_flags & libc::SS_ONSTACK != 0;
        let start = stack.ss_sp.addr() as u64;
        let alternate = match is_on_alternate {
            true => start..frame.max(start),
            false => 0..0,
        };
        self.store(0, alternate, is_on_alternate);
        let values = registers.into_iter().chain(std::iter::repeat(0));
        for (register, value) in self.registers.iter().zip(values) {
            register.store(value, Ordering::Relaxed);
        }
    }

    fn store(&self, instruction: u64, alternate: Range<u64>, is_on_alternate: bool) {
        // SAFETY: no requirements. It reads the thread pointer.
        let pointer = unsafe { libc::pthread_self() };
        self.pointer.store(pointer, Ordering::Relaxed);
        self.instruction.store(instruction, Ordering::Relaxed);
        self.alternate[0].store(alternate.start, Ordering::Relaxed);
        self.alternate[1].store(alternate.end, Ordering::Relaxed);
        self.is_on_alternate
            .store(is_on_alternate, Ordering::Relaxed);
    }

    /// Stores what is in another table. Async-signal-safe.
    pub(super) fn copy(&self, from: &SharedContext) {
        let alternate =
            from.alternate[0].load(Ordering::Relaxed)..from.alternate[1].load(Ordering::Relaxed);
        self.store(
            from.instruction.load(Ordering::Relaxed),
            alternate,
            from.is_on_alternate.load(Ordering::Relaxed),
        );
        for (to, from) in self.registers.iter().zip(&from.registers) {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    pub(super) fn load(&self) -> ThreadContext {
        ThreadContext {
            pointer: self.pointer.load(Ordering::Acquire),
            instruction: self.instruction.load(Ordering::Acquire),
            registers: std::array::from_fn(|at| self.registers[at].load(Ordering::Acquire)),
            alternate: self.alternate[0].load(Ordering::Acquire)
                ..self.alternate[1].load(Ordering::Acquire),
            is_on_alternate: self.is_on_alternate.load(Ordering::Acquire),
        }
    }
}
