//! The time at which things are recorded: nanoseconds since the process first asked.
//!
//! Every record has one, so it must cost little. Where the kernel itself keeps time by the processor's
//! time stamp counter, that counter is read directly, in half the time of `Instant::now`; its rate is
//! measured once against `Instant`. Elsewhere it is `Instant`: also where the file of the kernel that names
//! its clock cannot be read.
//!
//! The counter has 64 bits and lasts for more than a century. It may count on while the machine is
//! suspended, which `Instant` does not: such times are older by that. Only ages in reports and the order
//! of equal things at teardown depend on this, so nothing is unsound where a counter is wrong.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Nanoseconds for 2^32 ticks of the counter; 0 where the counter is not used, or nobody asked yet.
static RATE: AtomicU64 = AtomicU64::new(0);

/// What the counter showed at the start.
static START: AtomicU64 = AtomicU64::new(0);

/// Nanoseconds since the process first asked. Threads that look at the same moment may differ by some
/// nanoseconds.
#[inline]
pub fn nanoseconds() -> u64 {
    match RATE.load(Ordering::Acquire) {
        0 => begin(),
        rate => since(ticks().wrapping_sub(START.load(Ordering::Relaxed)), rate),
    }
}

#[inline]
fn since(ticks: u64, rate: u64) -> u64 {
    if ticks > i64::MAX as u64 {
        return before_the_start(ticks.wrapping_neg());
    }
    ((u128::from(ticks) * u128::from(rate)) >> 32) as u64
}

/// The counter shows a time before the start.
#[cold]
fn before_the_start(ticks: u64) -> u64 {
    if !began_anew(ticks) {
        return 0;
    }
    // `Instant` from now on.
    RATE.store(0, Ordering::Release);
    begin()
}

/// Whether a counter that is so far before the start was set back: some are while the machine is
/// suspended, or the process was moved to another machine. The counter of one processor may also be a
/// little behind that of another.
fn began_anew(ticks: u64) -> bool {
    ticks > 1 << 28
}

/// The first time, and always where there is no counter to rely on.
#[cold]
fn begin() -> u64 {
    static BEGUN: LazyLock<Instant> = LazyLock::new(|| {
        let begun = Instant::now();
        if is_reliable()
            && let Some((start, rate)) = measure(begun)
        {
            START.store(start, Ordering::Relaxed);
            RATE.store(rate, Ordering::Release);
        }
        begun
    });
    let begun = *BEGUN;
    match RATE.load(Ordering::Acquire) {
        0 => u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX),
        rate => since(ticks().wrapping_sub(START.load(Ordering::Relaxed)), rate),
    }
}

/// What the counter showed at `begun`, and its [rate](RATE). Takes a millisecond.
fn measure(begun: Instant) -> Option<(u64, u64)> {
    const LONG: Duration = Duration::from_millis(1);
    // The time and the counter at one moment: the best of some attempts, as the thread may be
    // interrupted between the two.
    let both = || {
        let attempt = || {
            let (before, time, after) = (ticks(), begun.elapsed(), ticks());
            (after.wrapping_sub(before), before, time)
        };
        (0..8)
            .map(|_| attempt())
            .min()
            .map(|(_, ticks, time)| (ticks, time))
    };
    let (first, early) = both()?;
    // From the first look on: the thread may have been held up before it.
    while begun.elapsed() < early + LONG {
        std::hint::spin_loop();
    }
    let (last, late) = both()?;
    let passed = last.checked_sub(first).filter(|ticks| *ticks > 1 << 10)?;
    let nanoseconds = late.checked_sub(early)?.as_nanos();
    let rate = u64::try_from((nanoseconds << 32) / u128::from(passed)).ok()?;
    // As many ticks before the first look as pass in that time.
    let early = u64::try_from((early.as_nanos() << 32) / u128::from(rate.max(1))).ok()?;
    (rate != 0).then(|| (first.wrapping_sub(early), rate))
}

/// Whether the counter of every processor runs at one rate, and the kernel trusts it.
#[cfg(target_arch = "x86_64")]
fn is_reliable() -> bool {
    const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let source = std::fs::read_to_string(SOURCE);
    source.is_ok_and(|source| source.trim() == "tsc")
}

#[cfg(not(target_arch = "x86_64"))]
fn is_reliable() -> bool {
    false
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn ticks() -> u64 {
    // SAFETY: every processor of this architecture has the instruction.
    unsafe { std::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn ticks() -> u64 {
    0
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::{nanoseconds, since};

    #[test]
    fn time_goes_on() {
        let mut before = nanoseconds();
        for _ in 0..10_000 {
            let now = nanoseconds();
            assert!(now >= before);
            before = now;
        }
    }

    /// It goes as fast as the clock of the standard library, in whichever way it is read.
    #[test]
    fn it_goes_as_fast_as_others() {
        nanoseconds();
        let (outer, start) = (Instant::now(), nanoseconds());
        let inner = Instant::now();
        std::thread::sleep(Duration::from_millis(30));
        let least = inner.elapsed().as_nanos() as f64;
        let passed = (nanoseconds() - start) as f64;
        let most = outer.elapsed().as_nanos() as f64;
        assert!(
            (least * 0.99..=most * 1.01).contains(&passed),
            "{least} {passed} {most}"
        );
    }

    /// The rate is that of a whole millisecond, also where the process is held up before it begins.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn the_rate_is_measured_for_long_enough() {
        if !super::is_reliable() {
            return;
        }
        let rates: Vec<f64> = (0..100)
            .filter_map(|_| super::measure(Instant::now() - Duration::from_millis(20)))
            .map(|(_, rate)| rate as f64)
            .collect();
        let (least, most) = rates.iter().fold((f64::MAX, 0.0), |(least, most), rate| {
            (rate.min(least), rate.max(most))
        });
        assert!(rates.len() == 100 && most / least < 1.01, "{rates:?}");
    }

    #[test]
    fn a_counter_that_is_behind_is_no_age() {
        assert_eq!(since(5_u64.wrapping_sub(7), 1 << 32), 0);
        assert_eq!(since(1_000, 1 << 31), 500);
    }

    #[test]
    fn a_counter_that_begins_anew_is_told_from_one_that_is_behind() {
        use super::began_anew;
        assert!(!began_anew(1) && !began_anew(1_000_000));
        // Ten seconds at the least rate that there is.
        assert!(began_anew(5_000_000_000) && began_anew(i64::MAX as u64));
    }
}
