//! The thread that makes the report.
//!
//! ```text
//!   IDLE ── request ──► CLAIMED ──► REQUESTED ── the thread ──► DONE
//!    ▲                                  ├── time is over ──────►  │
//!    ├── the exit begins, searched ─────┘                         │
//!    └──────────── fork, in the child                             │ after a failed exec, once more
//!                       CLAIMED ◄─────────────────────────────────┘
//! ```
//!
//! One word holds the phase. Other threads wait for it with a futex, which a signal handler may do too.
//!
//! The thread that exits may hold a lock of the dynamic linker: in a constructor of a library, or in a callback of
//! `dl_iterate_phdr`. Names cannot be looked up on another thread then. [`linker`] finds that out, and the report is made on
//! the thread that exits.

use std::ffi::c_int;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use cuguard_sync::own_thread;

use super::call::is_inside;
use super::death::die;
use super::futex::{wait, wake};
use super::{deadline, linker};
use crate::output::{self, recording};
use crate::process::{Reason, facts, is_used};
use crate::{heap, search, stderr};

const IDLE: u32 = 0;
const CLAIMED: u32 = 1;
const REQUESTED: u32 = 2;
const DONE: u32 = 3;

static PHASE: AtomicU32 = AtomicU32::new(IDLE);

/// Counts what the thread has to look at. It waits for a change of this word.
static EVENTS: AtomicU32 = AtomicU32::new(0);

/// The [`Reason`] of the last request.
static REASON: AtomicU32 = AtomicU32::new(0);

/// The thread, or 0.
static THREAD: AtomicI32 = AtomicI32::new(0);

/// The signal that ends the process when the report is made, or 0.
static DEATH: AtomicI32 = AtomicI32::new(0);

/// A word that nothing changes or wakes, to wait for.
static NEVER: AtomicU32 = AtomicU32::new(0);

/// Whether the main thread has called `pthread_exit`, or was cancelled.
static MAIN_MAY_END: AtomicBool = AtomicBool::new(false);

/// How often it is then checked whether other threads exist, at most and at least.
const POLL: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(1)];

/// How long it may wait before it checks again: the process ends later by a fiftieth of that time.
fn poll(since: Duration) -> Duration {
    (since / 50).clamp(POLL[0], POLL[1])
}

/// How long a report may take.
const LIMIT: Duration = Duration::from_secs(60);

/// How long a report may take at the end of a process by a thread that is in a recorded call: a signal handler of the program has
/// interrupted it, and it may hold a lock that the report needs. More than a search takes.
const BUSY_LIMIT: Duration = Duration::from_secs(10);

/// How long the calling thread waits for a report.
fn limit() -> Duration {
    match is_inside() {
        true => report_limit().min(BUSY_LIMIT),
        false => report_limit(),
    }
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

fn thread() -> i32 {
    cuguard_sync::own_thread::id()
}

/// The crate in the program lists its threads here.
#[cfg_attr(not(test), unsafe(no_mangle))]
extern "C" fn cuguard_audit_note_thread(thread: c_int, begins: c_int) {
    own_thread::note(thread, begins != 0);
}

fn run() {
    let _own = own_thread::enter();
    THREAD.store(thread(), Ordering::Release);
    let mut main_ended = None;
    loop {
        let events = EVENTS.load(Ordering::Acquire);
        let main_may_end = MAIN_MAY_END.load(Ordering::Acquire);
        if main_may_end && is_last_thread() {
            // As the C library does when the last thread ends.
            // SAFETY: handlers of the program may run on any thread.
            unsafe { libc::exit(0) };
        }
        let death = DEATH.load(Ordering::Acquire);
        match PHASE.load(Ordering::Acquire) {
            REQUESTED if linker::is_free() => make(),
            phase @ (IDLE | DONE) if death != 0 => {
                if claim(Reason::Signal(death)) {
                    make();
                } else if phase == DONE {
                    die(death);
                }
            }
            _ => {
                let most = main_may_end.then(|| {
                    let since = main_ended.get_or_insert_with(Instant::now);
                    poll(since.elapsed())
                });
                wait(&EVENTS, events, most);
            }
        }
    }
}

/// A thread calls `pthread_exit`. After the main thread has, the process ends with its last thread, and this one must not
/// keep it.
pub(super) fn note_thread_end() {
    if thread() == facts::process() {
        note_main_may_end();
    }
}

/// A thread is cancelled. The main one may end then as by `pthread_exit`, at once, later or never.
pub(super) fn note_thread_cancelled(thread: libc::pthread_t) {
    if facts::is_main_thread(thread) && facts::is_own_process() {
        note_main_may_end();
    }
}

fn note_main_may_end() {
    if THREAD.load(Ordering::Acquire) != 0 {
        MAIN_MAY_END.store(true, Ordering::Release);
        announce();
    }
}

/// Whether all other threads have ended. The main thread stays as a zombie.
fn is_last_thread() -> bool {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else {
        return false;
    };
    threads.flatten().all(|one| {
        let status = std::fs::read_to_string(one.path().join("stat")).unwrap_or_default();
        // The name is in parentheses and may have any characters.
        let state = status.rsplit_once(") ").map_or("Z", |(_, rest)| rest);
        let id = one.file_name();
        let id = id.to_str().and_then(|id| id.parse().ok());
        // Threads of these libraries do not keep a process.
        id.is_some_and(own_thread::is_own) || state.starts_with(['Z', 'X'])
    })
}

/// Makes the report, and ends the request.
fn make() {
    let reason = Reason::from_code(REASON.load(Ordering::Acquire));
    if reason == Reason::ExitBegins {
        let _ = std::panic::catch_unwind(|| {
            // What was launched until then is in the recording too.
            crate::state::registry().end_history();
            recording::exit_begins();
            crate::report::search_early();
        });
        let _ = PHASE.compare_exchange(REQUESTED, IDLE, Ordering::AcqRel, Ordering::Acquire);
        wake(&PHASE);
        return;
    }
    // The panic hook has printed its message.
    let _ = std::panic::catch_unwind(|| {
        if reason != Reason::Exec {
            // The report and the recording have the same end.
            cuguard_registry::note_exit();
        }
        let made = output::make(&reason);
        if PHASE.load(Ordering::Acquire) == REQUESTED {
            output::deliver(&made, reason);
        }
        if reason != Reason::Exec {
            recording::end();
            cuguard_live::stop();
        }
    });
    let _ = PHASE.compare_exchange(REQUESTED, DONE, Ordering::AcqRel, Ordering::Acquire);
    wake(&PHASE);
}

/// Reports the end of the process, unless there is nothing to report or that has been done. Returns when the report is
/// written or its time is over. Async-signal-safe.
pub(super) fn finish(reason: Reason) {
    if is_used() {
        request(reason);
    }
}

/// Requests the report and waits for it. Only the first request makes one, unless that was before an exec, which then
/// failed. Async-signal-safe.
fn request(reason: Reason) {
    if heap::is_inside() {
        // Interrupted by a signal handler, with a lock of the arena: no thread can make a report.
        return give_up(format_args!("a signal handler interrupted an allocation"));
    }
    // Another thread may have had the search made that precedes the report.
    while !request_once(reason) {}
}

/// Requests the report, and then the end of the process by the signal. Returns at once. Async-signal-safe.
pub(super) fn request_death(signal: i32) {
    let _ = DEATH.compare_exchange(0, signal, Ordering::AcqRel, Ordering::Acquire);
    announce();
}

/// The signal that ends the process when the report is made, or 0.
#[inline]
pub(super) fn death() -> i32 {
    DEATH.load(Ordering::Relaxed)
}

/// How long the report after [`request_death`] may take. Async-signal-safe.
pub(super) fn report_limit() -> Duration {
    facts::start().limit.map_or(LIMIT, Duration::from_secs)
}

/// Whether there is a thread that makes reports.
pub(super) fn is_launched() -> bool {
    THREAD.load(Ordering::Acquire) != 0
}

/// Waits for the end of the process, at most so long, or as long as a report may take. Async-signal-safe.
pub(super) fn wait_for_death(most: Option<Duration>) {
    let until = Instant::now() + most.unwrap_or_else(limit);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        wait(&NEVER, 0, Some(left));
    }
}

/// Returns whether there was no request yet, and this is one now.
fn claim(reason: Reason) -> bool {
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
        linker::forget();
        PHASE.store(REQUESTED, Ordering::Release);
    }
    claimed.is_ok()
}

/// Returns whether the request was made, or one that makes it superfluous.
fn request_once(reason: Reason) -> bool {
    let claimed = claim(reason);
    if claimed {
        let on_call = matches!(
            reason,
            Reason::Exit | Reason::ExitBegins | Reason::QuickExit | Reason::Exec
        );
        match THREAD.load(Ordering::Acquire) {
            // Also if this thread ends the process.
            0 if on_call => make(),
            own if own == thread() => make(),
            0 => {
                stderr::print("cuguard: no report: the reporting thread could not be started\n");
                PHASE.store(DONE, Ordering::Release);
            }
            _ => {
                announce();
                if !linker::wait() {
                    // This thread may be the one that has locked it.
                    match on_call {
                        true => make(),
                        false => give_up(format_args!("the dynamic linker is locked")),
                    }
                }
            }
        }
    }
    wait_until_done();
    claimed || PHASE.load(Ordering::Acquire) != IDLE
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
        wait(&PHASE, phase, Some(left));
    }
    let (seconds, why) = match is_inside() {
        true => (limit().as_secs(), "a signal handler interrupted a call"),
        false => (limit().as_secs(), "CUGUARD_REPORT_LIMIT"),
    };
    give_up(format_args!(
        "it was not complete after {seconds} s ({why})"
    ));
}

/// Ends the request without a report. The thread does not write it any more.
fn give_up(why: fmt::Arguments<'_>) {
    if PHASE.swap(DONE, Ordering::AcqRel) != DONE {
        output::print_why(why);
    }
    wake(&PHASE);
}

/// In a forked child, where the thread does not exist.
pub(super) fn forget() {
    THREAD.store(0, Ordering::Relaxed);
    MAIN_MAY_END.store(false, Ordering::Relaxed);
    DEATH.store(0, Ordering::Relaxed);
    deadline::forget();
    search::process_ends(false);
    PHASE.store(IDLE, Ordering::Release);
}

/// Lets the thread look at the phase and at [`MAIN_MAY_END`].
fn announce() {
    EVENTS.fetch_add(1, Ordering::AcqRel);
    wake(&EVENTS);
}
