//! The thread that makes the report.
//!
//! ```text
//!   IDLE ── request ──► CLAIMED ──► REQUESTED ── the thread ──► DONE
//!    ▲                                  └── time is over ──────►  │
//!    └──────────── fork, in the child                             │ after a failed exec, once more
//!                       CLAIMED ◄─────────────────────────────────┘
//! ```
//!
//! One word holds the phase. Threads wait for it with a futex, which a signal handler may do too.

use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::{Reason, made, output, start};

const IDLE: u32 = 0;
const CLAIMED: u32 = 1;
const REQUESTED: u32 = 2;
const DONE: u32 = 3;

static PHASE: AtomicU32 = AtomicU32::new(IDLE);

/// The [`Reason`] of the last request.
static REASON: AtomicU32 = AtomicU32::new(0);

/// The thread, or 0.
static THREAD: AtomicI32 = AtomicI32::new(0);

/// How long a report may take.
const LIMIT: Duration = Duration::from_secs(60);

fn limit() -> Duration {
    start::start().limit.map_or(LIMIT, Duration::from_secs)
}

/// Starts the thread. It ends with the process.
pub(super) fn launch() {
    // The thread inherits this mask: the program's signals are for the program's threads.
    let before = block_signals();
    let spawned = std::thread::Builder::new()
        .name("cuguard-report".to_owned())
        .stack_size(8 << 20)
        .spawn(run);
    if spawned.is_ok() {
        // Requests wait for the thread rather than see it running, so this is set here.
        let _ = THREAD.compare_exchange(0, i32::MAX, Ordering::AcqRel, Ordering::Relaxed);
    }
    restore_signals(&before);
}

fn block_signals() -> libc::sigset_t {
    // SAFETY: sets are plain data, for which zero is valid, and both can be written to.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        before
    }
}

fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: a set that the system returned.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before, std::ptr::null_mut()) };
}

fn run() {
    // SAFETY: always succeeds.
    THREAD.store(unsafe { libc::gettid() }, Ordering::Release);
    loop {
        match PHASE.load(Ordering::Acquire) {
            REQUESTED => make(),
            phase => wait(phase, None),
        }
    }
}

/// Makes the report, and ends the request.
fn make() {
    let reason = Reason::from_code(REASON.load(Ordering::Acquire));
    // The panic hook has printed its message.
    let _ = std::panic::catch_unwind(|| {
        let made = made::make(&reason);
        if PHASE.load(Ordering::Acquire) == REQUESTED {
            output::deliver(&made, reason);
        }
    });
    let _ = PHASE.compare_exchange(REQUESTED, DONE, Ordering::AcqRel, Ordering::Acquire);
    wake();
}

/// Has the report made, and waits for it. Only the first request makes one, unless that was before an exec, which then
/// failed. Async-signal-safe.
pub(super) fn request(reason: Reason) {
    let claimed = PHASE.fetch_update(Ordering::AcqRel, Ordering::Acquire, |phase| {
        let exec_failed = || REASON.load(Ordering::Relaxed) == Reason::Exec.code();
        match phase {
            IDLE => Some(CLAIMED),
            DONE if exec_failed() => Some(CLAIMED),
            _ => None,
        }
    });
    if claimed.is_ok() {
        REASON.store(reason.code(), Ordering::Release);
        PHASE.store(REQUESTED, Ordering::Release);
        let on_call = matches!(reason, Reason::Exit | Reason::QuickExit | Reason::Exec);
        match THREAD.load(Ordering::Acquire) {
            0 if on_call => make(),
            0 => {
                output::print("cuguard: no report: the reporting thread could not be started\n");
                PHASE.store(DONE, Ordering::Release);
            }
            _ => wake(),
        }
    }
    wait_until_done();
}

fn wait_until_done() {
    let until = Instant::now() + limit();
    loop {
        let phase = PHASE.load(Ordering::Acquire);
        let left = until.saturating_duration_since(Instant::now());
        if phase == DONE || phase == IDLE {
            return;
        }
        if left.is_zero() {
            break;
        }
        wait(phase, Some(left));
    }
    // The thread does not write its report any more.
    if PHASE.swap(DONE, Ordering::AcqRel) != DONE {
        output::print_late(limit());
    }
    wake();
}

/// In a forked child, where the thread does not exist.
pub(super) fn forget() {
    THREAD.store(0, Ordering::Relaxed);
    PHASE.store(IDLE, Ordering::Release);
}

/// Waits while the phase is this one, at most so long. May return early.
fn wait(phase: u32, most: Option<Duration>) {
    let time = most.map(|most| libc::timespec {
        tv_sec: most.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: most.subsec_nanos().into(),
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word lives as long as the process, and the time is null or valid.
    unsafe { libc::syscall(libc::SYS_futex, PHASE.as_ptr(), operation, phase, time) };
}

fn wake() {
    let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word lives as long as the process.
    unsafe { libc::syscall(libc::SYS_futex, PHASE.as_ptr(), operation, i32::MAX) };
}
