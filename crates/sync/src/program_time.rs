//! Times since the start of the program: the origin of the times in reports and recordings.
//!
//! A constructor notes when the program starts. The system knows the start of the process alone, to 10 ms, and another
//! program may have run in it before: `cargo run` and `exec` of a shell replace themselves.

use std::ffi::c_int;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use crate::clock;

/// When the program started, by the monotonic clock; 0 before.
static STARTED: AtomicU64 = AtomicU64::new(0);

/// The process in which it did.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// Runs before `main`, or when the library that has this code is loaded.
extern "C" fn start() {
    STARTED.store(now(libc::CLOCK_MONOTONIC).unwrap_or(0), Ordering::Relaxed);
    PROCESS.store(process(), Ordering::Relaxed);
}

#[used]
// SAFETY: the section has pointers to functions without a result; the arguments that they get may be ignored.
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = start;

/// A time of the [clock](crate::clock), counted from the start of the program, in nanoseconds. Of a library that is loaded
/// later it is the time since then, of a forked child that since the fork, to 10 ms.
///
/// A child that is forked after the first call counts as its parent.
///
/// ```
/// use cuguard_sync::{clock, since_start};
///
/// let (early, late) = (clock::nanoseconds(), clock::nanoseconds());
/// assert_eq!(since_start(late) - since_start(early), late - early);
/// ```
#[must_use]
pub fn since_start(time: u64) -> u64 {
    static OFFSET: OnceLock<i64> = OnceLock::new();
    let offset = *OFFSET.get_or_init(|| {
        let age = age().or_else(age_of_process);
        let age = age.and_then(|age| i64::try_from(age).ok());
        // The clock may have been read first by the parent of a forked child.
        let clock = clock::nanoseconds().min(i64::MAX as u64);
        age.map_or(0, |age| age.saturating_sub_unsigned(clock))
    });
    time.saturating_add_signed(offset)
}

/// How long the program has run. `None` in a forked child.
fn age() -> Option<u64> {
    let started = STARTED.load(Ordering::Relaxed);
    let is_own = started != 0 && PROCESS.load(Ordering::Relaxed) == process();
    now(libc::CLOCK_MONOTONIC)?
        .checked_sub(started)
        .filter(|_| is_own)
}

/// How long the process has run.
fn age_of_process() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in parentheses, may have spaces.
    let (_, fields) = stat.rsplit_once(')')?;
    let started: u64 = fields.split_whitespace().nth(19)?.parse().ok()?;
    // SAFETY: reads a constant of the system.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    let tick = 1_000_000_000 / u64::try_from(ticks).ok().filter(|ticks| *ticks > 0)?;
    now(libc::CLOCK_BOOTTIME)?.checked_sub(started.checked_mul(tick)?)
}

fn process() -> c_int {
    // SAFETY: always succeeds.
    unsafe { libc::getpid() }
}

/// A clock of the system, in nanoseconds.
fn now(clock: libc::clockid_t) -> Option<u64> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for writing.
    let code = unsafe { libc::clock_gettime(clock, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).ok().filter(|_| code == 0)?;
    seconds
        .checked_mul(1_000_000_000)?
        .checked_add(u64::try_from(time.tv_nsec).ok()?)
}

#[cfg(test)]
mod tests {
    use super::{age, age_of_process, now, since_start};
    use crate::clock;

    /// The rates of clocks differ a little, and the system knows the start of a process to 10 ms.
    const SLACK: u64 = 20_000_000;

    #[test]
    fn times_count_from_the_start_of_the_program() {
        let before = age().unwrap();
        let time = since_start(clock::nanoseconds());
        let after = age().unwrap();
        assert!(
            (before.saturating_sub(SLACK)..=after + SLACK).contains(&time),
            "{before} {time} {after}"
        );
    }

    /// Another program may have run in the process before, and none after.
    #[test]
    fn a_program_is_not_older_than_its_process() {
        let program = age().unwrap();
        let process = age_of_process().unwrap();
        assert!(program <= process + SLACK, "{program} {process}");
    }

    /// A child of `fork` has its own start, which is later.
    #[test]
    fn a_forked_child_is_younger() {
        let before = now(libc::CLOCK_MONOTONIC).unwrap();
        // SAFETY: the child calls async-signal-safe functions and functions of this file, which need no lock that another
        // thread may hold but that of the allocator, which glibc makes usable in a forked child.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let process = age_of_process().unwrap_or(u64::MAX);
            let passed = now(libc::CLOCK_MONOTONIC)
                .unwrap_or(0)
                .saturating_sub(before);
            let is_younger = age().is_none() && process <= passed + SLACK;
            // SAFETY: ends the child without running handlers of the parent.
            unsafe { libc::_exit(i32::from(!is_younger)) };
        }
        assert!(child > 0);
        let mut status = 0;
        // SAFETY: `status` is valid for writing, and the child is waited for once.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!((waited, status), (child, 0));
    }
}
