//! A cheap clock for records: nanoseconds since its first use.
//!
//! If the kernel's clock source is the processor's time stamp counter (TSC), that counter is read directly,
//! which takes half the time of `Instant::now`; its rate is measured once against `Instant`. Otherwise, or
//! if the clock source cannot be read, the clock is `Instant`.
//!
//! The counter has 64 bits and lasts for more than a century. It may count while the machine is suspended,
//! which `Instant` does not: ages are larger by that. Only ages in reports, the order of equal resources at
//! teardown, and whether a record is still the one that a search was for depend on the clock, so a wrong
//! counter is never unsound.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Nanoseconds for 2^32 ticks of the counter; 0 before the first use, or if the counter is not used.
static RATE: AtomicU64 = AtomicU64::new(0);

/// The counter at the start.
static START: AtomicU64 = AtomicU64::new(0);

/// Nanoseconds since the first call. Threads that call at the same moment may differ by some nanoseconds.
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

/// The counter is before the start.
#[cold]
fn before_the_start(ticks: u64) -> u64 {
    if !was_reset(ticks) {
        return 0;
    }
    // Uses `Instant` from now on.
    RATE.store(0, Ordering::Release);
    begin()
}

/// Whether a counter this far before the start was reset, by a suspend or a migration to another machine.
/// Otherwise the counter of one processor is a little behind that of another.
fn was_reset(ticks: u64) -> bool {
    ticks > 1 << 28
}

/// The first call, and every call without a reliable counter.
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

/// The counter at `begun`, and its [rate](RATE). Takes a millisecond.
fn measure(begun: Instant) -> Option<(u64, u64)> {
    const LONG: Duration = Duration::from_millis(1);
    // Time and counter at the same moment: the best of some attempts, because the thread may be preempted
    // between the two.
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
    // From `early`: the thread may have been preempted before.
    while begun.elapsed() < early + LONG {
        std::hint::spin_loop();
    }
    let (last, late) = both()?;
    let passed = last.checked_sub(first).filter(|ticks| *ticks > 1 << 10)?;
    let nanoseconds = late.checked_sub(early)?.as_nanos();
    let rate = u64::try_from((nanoseconds << 32) / u128::from(passed)).ok()?;
    // The ticks before `first`.
    let early = u64::try_from((early.as_nanos() << 32) / u128::from(rate.max(1))).ok()?;
    (rate != 0).then(|| (first.wrapping_sub(early), rate))
}

/// Whether the kernel trusts the counter: it then has the same rate on every processor.
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
    // SAFETY: every x86-64 processor has the instruction.
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
    fn a_counter_that_was_reset_is_told_from_one_that_is_behind() {
        use super::was_reset;
        assert!(!was_reset(1) && !was_reset(1_000_000));
        // Ten seconds at the least rate that there is.
        assert!(was_reset(5_000_000_000) && was_reset(i64::MAX as u64));
    }
}
