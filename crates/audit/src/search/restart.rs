//! System calls that the stop of a thread has interrupted are made again.
//!
//! The kernel restarts some system calls by itself, behind a handler with `SA_RESTART`. Others return `EINTR`, as `nanosleep`, `poll`
//! and `epoll_wait`, and programs seldom expect that: `sleep` would end early. What a thread waits in is noted before the signal is
//! sent. When the handler returns, it leads the thread back to the instruction, with the same arguments.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::{interrupted, task};

/// What a thread waits in, if it does.
pub(super) struct Waiting {
    number: AtomicI64,
    /// The first argument.
    first: AtomicU64,
    stack_pointer: AtomicU64,
    /// The instruction behind the system call; zero where the thread waits in none. Thousands of these are zero at the start, and so
    /// take no place in the library's file.
    next: AtomicU64,
}

/// Those that return `EINTR` behind every handler. Where one has a time to wait and no place for the rest of it, it waits the whole
/// time once more. `connect` is not among them: it goes on by itself, and fails when it is called again.
const RESTARTED: &[libc::c_long] = &[
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
    libc::SYS_ppoll,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_select,
    libc::SYS_pselect6,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_epoll_wait,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_futex,
    libc::SYS_semop,
    libc::SYS_semtimedop,
    libc::SYS_msgrcv,
    libc::SYS_msgsnd,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_pause,
    libc::SYS_rt_sigsuspend,
    libc::SYS_io_getevents,
    // With a time limit of the socket.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
];

impl Waiting {
    pub(super) const fn new() -> Self {
        Self {
            number: AtomicI64::new(0),
            first: AtomicU64::new(0),
            stack_pointer: AtomicU64::new(0),
            next: AtomicU64::new(0),
        }
    }

    /// Notes what a thread waits in now. Before the signal is sent to it.
    pub(super) fn note(&self, thread: i32) {
        let call = task::system_call(thread).filter(|call| RESTARTED.contains(&call.number));
        if let Some(call) = &call {
            self.number.store(call.number, Ordering::Relaxed);
            self.first.store(call.first, Ordering::Relaxed);
            self.stack_pointer
                .store(call.stack_pointer, Ordering::Relaxed);
        }
        let next = call.map_or(0, |call| call.next);
        self.next.store(next, Ordering::Release);
    }

    /// At the end of the handler: leads the thread back to the system call that the signal has interrupted. Not if a handler of the
    /// program runs next, which would have interrupted it as well. Async-signal-safe.
    ///
    /// # Safety
    /// `context` is that of the handler that calls this, for a signal other than those of the program.
    pub(super) unsafe fn restart(&self, context: *mut libc::ucontext_t) {
        if self.next.load(Ordering::Acquire) == 0 {
            return;
        }
        // SAFETY: as the caller guarantees; nothing else uses it now.
        let context = unsafe { &mut *context };
        if self.was_interrupted(context) && !is_handled_next(&context.uc_sigmask) {
            self.again(context);
        }
    }

    fn was_interrupted(&self, context: &libc::ucontext_t) -> bool {
        registers::result(context) == -i64::from(libc::EINTR)
            && interrupted::instruction(context) == self.next.load(Ordering::Relaxed)
            && interrupted::stack_pointer(context) == self.stack_pointer.load(Ordering::Relaxed)
    }

    /// Makes the thread call it again when the handler returns.
    fn again(&self, context: &mut libc::ucontext_t) {
        let number = self.number.load(Ordering::Relaxed);
        registers::call_again(context, number, self.first.load(Ordering::Relaxed));
        // The kernel has written the rest of the time where the program wants it: only that is left to wait.
        let (time, rest) = match number {
            libc::SYS_nanosleep => (0, 1),
            // With `TIMER_ABSTIME` the kernel writes nothing.
            libc::SYS_clock_nanosleep if *registers::argument(context, 1) == 0 => (2, 3),
            _ => return,
        };
        let rest = *registers::argument(context, rest);
        if rest != 0 {
            *registers::argument(context, time) = rest;
        }
    }
}

/// The registers of a system call.
#[cfg(target_arch = "x86_64")]
mod registers {
    /// The length of the instruction `syscall`.
    const INSTRUCTION: i64 = 2;
    /// The registers of the arguments.
    const ARGUMENTS: [libc::c_int; 4] =
        [libc::REG_RDI, libc::REG_RSI, libc::REG_RDX, libc::REG_R10];

    pub(super) fn result(context: &libc::ucontext_t) -> i64 {
        context.uc_mcontext.gregs[libc::REG_RAX as usize]
    }

    pub(super) fn argument(context: &mut libc::ucontext_t, number: usize) -> &mut i64 {
        &mut context.uc_mcontext.gregs[ARGUMENTS[number] as usize]
    }

    /// Leads back to the instruction. The result has overwritten the number; the arguments are still in their registers.
    pub(super) fn call_again(context: &mut libc::ucontext_t, number: i64, _first: u64) {
        let registers = &mut context.uc_mcontext.gregs;
        registers[libc::REG_RAX as usize] = number;
        registers[libc::REG_RIP as usize] -= INSTRUCTION;
    }
}

/// The registers of a system call.
#[cfg(target_arch = "aarch64")]
mod registers {
    /// The length of the instruction `svc`.
    const INSTRUCTION: u64 = 4;

    pub(super) fn result(context: &libc::ucontext_t) -> i64 {
        context.uc_mcontext.regs[0].cast_signed()
    }

    pub(super) fn argument(context: &mut libc::ucontext_t, number: usize) -> &mut u64 {
        &mut context.uc_mcontext.regs[number]
    }

    /// Leads back to the instruction. The result has overwritten the first argument; the others and the number are still in their
    /// registers.
    pub(super) fn call_again(context: &mut libc::ucontext_t, _number: i64, first: u64) {
        *argument(context, 0) = first;
        context.uc_mcontext.pc -= INSTRUCTION;
    }
}

/// Whether a handler of the program runs when the thread goes on with this mask. In a handler that blocks all signals.
fn is_handled_next(mask: &libc::sigset_t) -> bool {
    let mut pending = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set can be written to; all zero bytes are a valid one.
    let pending = unsafe {
        libc::sigpending(pending.as_mut_ptr());
        pending.assume_init()
    };
    let is_in = |set: &libc::sigset_t, signal| {
        // SAFETY: the set is valid.
        unsafe { libc::sigismember(set, signal) == 1 }
    };
    (1..=libc::SIGRTMAX())
        .any(|signal| is_in(&pending, signal) && !is_in(mask, signal) && has_handler(signal))
}

/// Whether the program handles a signal.
fn has_handler(signal: libc::c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all zero bytes are a valid structure, which can be written to.
    let action = unsafe {
        libc::sigaction(signal, ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction != libc::SIG_DFL && action.sa_sigaction != libc::SIG_IGN
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A thread that a signal interrupted in a system call, and what was noted of it before.
    fn thread_in(number: libc::c_long, arguments: [u64; 4]) -> (Waiting, libc::ucontext_t) {
        // SAFETY: all zero bytes are a valid structure.
        let mut context: libc::ucontext_t = unsafe { std::mem::zeroed() };
        let (next, stack_pointer) = (0x40_1000, 0x7f00_1230);
        for (at, value) in arguments.into_iter().enumerate() {
            set(registers::argument(&mut context, at), value);
        }
        let result = -i64::from(libc::EINTR);
        #[cfg(target_arch = "x86_64")]
        {
            let registers = &mut context.uc_mcontext.gregs;
            registers[libc::REG_RAX as usize] = result;
            registers[libc::REG_RIP as usize] = next;
            registers[libc::REG_RSP as usize] = stack_pointer;
        }
        #[cfg(target_arch = "aarch64")]
        {
            context.uc_mcontext.regs[8] = number.cast_unsigned();
            context.uc_mcontext.regs[0] = result.cast_unsigned();
            context.uc_mcontext.pc = next as u64;
            context.uc_mcontext.sp = stack_pointer as u64;
        }
        let waiting = Waiting {
            number: AtomicI64::new(number),
            first: AtomicU64::new(arguments[0]),
            stack_pointer: AtomicU64::new(stack_pointer as u64),
            next: AtomicU64::new(next as u64),
        };
        (waiting, context)
    }

    #[cfg(target_arch = "x86_64")]
    fn set(register: &mut i64, value: u64) {
        *register = value.cast_signed();
    }

    #[cfg(target_arch = "aarch64")]
    fn set(register: &mut u64, value: u64) {
        *register = value;
    }

    /// The number of the call that the thread makes next, and its arguments.
    fn next_call(context: &mut libc::ucontext_t) -> (i64, [u64; 4]) {
        #[cfg(target_arch = "x86_64")]
        let (number, length) = (context.uc_mcontext.gregs[libc::REG_RAX as usize], 2);
        #[cfg(target_arch = "aarch64")]
        let (number, length) = (context.uc_mcontext.regs[8].cast_signed(), 4);
        assert_eq!(interrupted::instruction(context), 0x40_1000 - length);
        let argument = |at| *registers::argument(context, at) as u64;
        (number, [0, 1, 2, 3].map(argument))
    }

    #[test]
    fn a_call_is_made_again_with_its_arguments() {
        for (number, arguments, expected) in [
            (libc::SYS_ppoll, [0x5000, 1, 2, 3], [0x5000, 1, 2, 3]),
            // Only for the rest of the time, where the program has a place for it.
            (
                libc::SYS_nanosleep,
                [0x5000, 0x6000, 2, 3],
                [0x6000, 0x6000, 2, 3],
            ),
            (libc::SYS_nanosleep, [0x5000, 0, 2, 3], [0x5000, 0, 2, 3]),
            (
                libc::SYS_clock_nanosleep,
                [1, 0, 0x5000, 0x6000],
                [1, 0, 0x6000, 0x6000],
            ),
            (
                libc::SYS_clock_nanosleep,
                [1, 1, 0x5000, 0x6000],
                [1, 1, 0x5000, 0x6000],
            ),
        ] {
            let (waiting, mut context) = thread_in(number, arguments);
            assert!(waiting.was_interrupted(&context));
            // SAFETY: a context that nothing else uses; no signal is pending.
            unsafe { waiting.restart(&mut context) };
            assert_eq!(next_call(&mut context), (number, expected));
        }
    }

    #[test]
    fn a_thread_that_went_on_makes_no_call_again() {
        let (waiting, mut context) = thread_in(libc::SYS_ppoll, [0; 4]);
        for (next, stack_pointer) in [(0x40_1004, 0x7f00_1230), (0x40_1000, 0x7f00_1240), (0, 0)] {
            waiting.next.store(next, Ordering::Relaxed);
            waiting
                .stack_pointer
                .store(stack_pointer, Ordering::Relaxed);
            // SAFETY: as above.
            unsafe { waiting.restart(&mut context) };
            assert_eq!(interrupted::instruction(&context), 0x40_1000);
        }
    }
}
