//! Times since the start of the process: the origin of the times in reports and recordings.

use std::sync::OnceLock;

use crate::clock;

/// A time of the [clock](crate::clock), counted from the start of the process, in nanoseconds. The system knows the start to 10 ms; all times
/// of a process are off by the same. Where it is not known, times count from the first use of the clock.
///
/// A child that is forked after a call of this counts from the start of its parent.
///
/// ```
/// use cuguard_sync::{clock, since_process_start};
///
/// let (early, late) = (clock::nanoseconds(), clock::nanoseconds());
/// assert_eq!(since_process_start(late) - since_process_start(early), late - early);
/// ```
#[must_use]
pub fn since_process_start(time: u64) -> u64 {
    static OFFSET: OnceLock<i64> = OnceLock::new();
    let offset = *OFFSET.get_or_init(|| {
        let age = age().and_then(|age| i64::try_from(age).ok());
        // The clock may have been read first by the parent of a forked child.
        age.map_or(0, |age| {
            age.saturating_sub_unsigned(clock::nanoseconds().min(i64::MAX as u64))
        })
    });
    time.saturating_add_signed(offset)
}

/// How long the process has run.
fn age() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in parentheses, may have spaces.
    let (_, fields) = stat.rsplit_once(')')?;
    let started: u64 = fields.split_whitespace().nth(19)?.parse().ok()?;
    // SAFETY: reads a constant of the system.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    let tick = 1_000_000_000 / u64::try_from(ticks).ok().filter(|ticks| *ticks > 0)?;
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is valid for writing.
    let code = unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut now) };
    let seconds = u64::try_from(now.tv_sec).ok().filter(|_| code == 0)?;
    let now = seconds.checked_mul(1_000_000_000)? + now.tv_nsec as u64;
    now.checked_sub(started.checked_mul(tick)?)
}

#[cfg(test)]
mod tests {
    use super::{age, since_process_start};
    use crate::clock;

    #[test]
    fn times_count_from_the_start_of_the_process() {
        let (before, time, after) = (
            age().unwrap(),
            since_process_start(clock::nanoseconds()),
            age().unwrap(),
        );
        // The clock and that of the system may differ a little in their rates.
        let slack = 1_000_000;
        assert!(
            (before - slack..=after + slack).contains(&time),
            "{before} {time} {after}"
        );
    }
}
