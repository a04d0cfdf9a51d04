//! System calls that the stop of a thread has interrupted are made again.
//!
//! The kernel restarts some system calls by itself, behind a handler with `SA_RESTART`. Others return `EINTR`, as `nanosleep`, `poll`
//! and `epoll_wait`, and programs seldom expect that: `sleep` would end early. What a thread waits in is noted before the signal is
//! sent. When the handler returns, it leads the thread back to the instruction, with the same arguments.
//!
//! On aarch64, they return `EINTR`.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::task;

/// What a thread waits in, if it does.
pub(super) struct Waiting {
    number: AtomicI64,
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
            stack_pointer: AtomicU64::new(0),
            next: AtomicU64::new(0),
        }
    }

    /// Notes what a thread waits in now. Before the signal is sent to it.
    pub(super) fn note(&self, thread: i32) {
        let call = task::system_call(thread).filter(|call| RESTARTED.contains(&call.number));
        if let Some(call) = &call {
            self.number.store(call.number, Ordering::Relaxed);
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
        let number = self.number.load(Ordering::Relaxed);
        // SAFETY: as the caller guarantees; nothing else uses it now.
        let context = unsafe { &mut *context };
        if self.was_interrupted(context) && !is_handled_next(&context.uc_sigmask) {
            again(context, number);
        }
    }

    #[cfg(target_arch = "x86_64")]
    fn was_interrupted(&self, context: &libc::ucontext_t) -> bool {
        let register = |register: libc::c_int| context.uc_mcontext.gregs[register as usize];
        let is = |at: libc::c_int, value: &AtomicU64| {
            register(at).cast_unsigned() == value.load(Ordering::Relaxed)
        };
        register(libc::REG_RAX) == -i64::from(libc::EINTR)
            && is(libc::REG_RIP, &self.next)
            && is(libc::REG_RSP, &self.stack_pointer)
    }

    #[cfg(not(target_arch = "x86_64"))]
    fn was_interrupted(&self, _: &libc::ucontext_t) -> bool {
        false
    }
}

/// Makes the thread call it again when the handler returns. The arguments are still in their registers.
#[cfg(target_arch = "x86_64")]
fn again(context: &mut libc::ucontext_t, number: i64) {
    /// The length of the instruction `syscall`.
    const INSTRUCTION: i64 = 2;
    let registers = &mut context.uc_mcontext.gregs;
    registers[libc::REG_RAX as usize] = number;
    registers[libc::REG_RIP as usize] -= INSTRUCTION;
    // The kernel has written the rest of the time where the program wants it: only that is left to wait.
    let (time, rest) = match number {
        libc::SYS_nanosleep => (libc::REG_RDI, libc::REG_RSI),
        // With `TIMER_ABSTIME` the kernel writes nothing.
        libc::SYS_clock_nanosleep if registers[libc::REG_RSI as usize] == 0 => {
            (libc::REG_RDX, libc::REG_R10)
        }
        _ => return,
    };
    if registers[rest as usize] != 0 {
        registers[time as usize] = registers[rest as usize];
    }
}

#[cfg(not(target_arch = "x86_64"))]
fn again(_: &mut libc::ucontext_t, _: i64) {}

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
