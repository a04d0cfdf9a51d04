//! Counts and bytes by kind: counters that are always on.
//!
//! Bytes are one number for all threads, or there would be no exact peak. Counts are per thread and summed when
//! they are read.

use std::ops::{AddAssign, SubAssign};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use super::kind::Kind;
use cuguard_sync::PerThread;

/// A number of things and the bytes that they take together.
///
/// ```
/// let mut amount = cuguard::snapshot::Amount::new(1, 100);
/// amount += cuguard::snapshot::Amount::new(2, 50);
/// assert_eq!((amount.count, amount.bytes), (3, 150));
/// assert!(cuguard::snapshot::Amount::default().is_zero());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Amount {
    /// How many.
    pub count: u64,
    /// How many bytes; 0 for handles.
    pub bytes: u64,
}

impl Amount {
    /// So many things of so many bytes together.
    ///
    /// ```
    /// assert_eq!(cuguard::snapshot::Amount::new(3, 12).bytes, 12);
    /// ```
    #[must_use]
    pub const fn new(count: u64, bytes: u64) -> Self {
        Self { count, bytes }
    }

    /// Whether there is nothing.
    ///
    /// ```
    /// assert!(!cuguard::snapshot::Amount::new(1, 0).is_zero());
    /// ```
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.count == 0 && self.bytes == 0
    }
}

impl AddAssign for Amount {
    fn add_assign(&mut self, more: Self) {
        self.count = self.count.saturating_add(more.count);
        self.bytes = self.bytes.saturating_add(more.bytes);
    }
}

impl SubAssign for Amount {
    fn sub_assign(&mut self, less: Self) {
        self.count = self.count.saturating_sub(less.count);
        self.bytes = self.bytes.saturating_sub(less.bytes);
    }
}

/// What there is and was of one kind in one context.
///
/// Each figure by itself is exact. Where other threads allocate and free meanwhile, two figures may
/// be of different moments.
///
/// ```
/// let totals = cuguard::snapshot::Totals::default();
/// assert_eq!((totals.count, totals.bytes, totals.peak_bytes, totals.allocated), (0, 0, 0, 0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// How many are alive.
    pub count: u64,
    /// The bytes that they take.
    pub bytes: u64,
    /// The most bytes that were alive at one time. All threads add to and take from one number, and
    /// this is the largest value that it ever had: no value that a thread saw is above it.
    pub peak_bytes: u64,
    /// How many were ever allocated.
    pub allocated: u64,
}

impl Totals {
    /// What is alive.
    ///
    /// ```
    /// assert!(cuguard::snapshot::Totals::default().live().is_zero());
    /// ```
    #[must_use]
    pub const fn live(self) -> Amount {
        Amount::new(self.count, self.bytes)
    }
}

/// How many of each kind one lane of threads allocated and freed. What one thread makes another may
/// free, so only the sums over all lanes mean something.
#[derive(Debug, Default)]
struct Tally {
    allocated: [AtomicU64; Kind::COUNT],
    freed: [AtomicU64; Kind::COUNT],
}

/// The bytes of one kind. They lie on cache lines of their own (processors fetch them in pairs), so that
/// threads that work with different kinds do not slow each other down.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Bytes {
    live: AtomicU64,
    peak: AtomicU64,
}

/// The counters of one context. Relaxed throughout: nothing is published through them.
#[derive(Debug, Default)]
pub(super) struct Counters {
    tallies: PerThread<Tally>,
    bytes: [Bytes; Kind::COUNT],
}

impl Counters {
    /// Something was allocated. Answers how many of the kind this lane had allocated before.
    #[inline]
    pub(super) fn add(&self, kind: Kind, bytes: u64) -> u64 {
        self.add_bytes(kind, bytes);
        let mine = self.tallies.slot();
        mine.add(|tally| &tally.allocated[kind.index()], 1)
    }

    #[inline]
    fn add_bytes(&self, kind: Kind, bytes: u64) {
        if bytes != 0 {
            self.bytes[kind.index()].add(bytes);
        }
    }

    /// Something is freed.
    #[inline]
    pub(super) fn sub(&self, kind: Kind, bytes: u64) {
        let mine = self.tallies.slot();
        mine.add(|tally| &tally.freed[kind.index()], 1);
        if bytes != 0 {
            self.bytes[kind.index()].live.fetch_sub(bytes, Relaxed);
        }
    }

    /// Undoes a [`sub`](Self::sub), for what was not freed after all.
    #[cold]
    pub(super) fn restore(&self, kind: Kind, bytes: u64) {
        let mine = self.tallies.slot();
        self.add_bytes(kind, bytes);
        mine.add(|tally| &tally.freed[kind.index()], 1_u64.wrapping_neg());
    }

    pub(super) fn totals(&self, kind: Kind) -> Totals {
        let index = kind.index();
        // Read before what was allocated, so that a thing that comes and goes in between is not
        // counted as freed only.
        let freed = sum(self.tallies.all().map(|tally| &tally.freed[index]));
        let allocated = sum(self.tallies.all().map(|tally| &tally.allocated[index]));
        let bytes = self.bytes[index].live();
        Totals {
            count: allocated.saturating_sub(freed),
            bytes,
            // An allocation under way may have added its bytes and not yet raised the peak.
            peak_bytes: self.bytes[index].peak.load(Relaxed).max(bytes),
            allocated,
        }
    }

    pub(super) fn live(&self) -> Amount {
        let mut sum = Amount::default();
        for kind in Kind::ALL {
            sum += self.totals(*kind).live();
        }
        sum
    }
}

fn sum<'a>(counts: impl Iterator<Item = &'a AtomicU64>) -> u64 {
    counts.fold(0, |sum, count| sum.wrapping_add(count.load(Relaxed)))
}

impl Bytes {
    #[inline]
    fn add(&self, bytes: u64) {
        let live = self.live.fetch_add(bytes, Relaxed).wrapping_add(bytes);
        // Mostly it is not a new peak, and then nothing is written.
        if self.peak.load(Relaxed) < live {
            self.peak.fetch_max(live, Relaxed);
        }
    }

    /// Never below zero, also where something was taken out twice.
    fn live(&self) -> u64 {
        let bytes = self.live.load(Relaxed);
        if bytes > i64::MAX as u64 { 0 } else { bytes }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::{Amount, Counters};
    use crate::kind::Kind;

    #[test]
    fn totals_follow_what_comes_and_goes() {
        let counters = Counters::default();
        counters.add(Kind::Device, 100);
        counters.add(Kind::Device, 50);
        counters.sub(Kind::Device, 100);
        counters.add(Kind::Stream, 0);
        let device = counters.totals(Kind::Device);
        assert_eq!(
            (
                device.count,
                device.bytes,
                device.peak_bytes,
                device.allocated
            ),
            (1, 50, 150, 2)
        );
        assert_eq!(counters.live(), Amount::new(2, 50));
    }

    #[test]
    fn what_is_taken_out_twice_does_not_go_below_zero() {
        let counters = Counters::default();
        counters.sub(Kind::Device, 10);
        assert_eq!(counters.live(), Amount::default());
    }

    #[test]
    fn no_byte_is_lost_when_threads_start_at_different_times() {
        for round in 0..300_u64 {
            let counters = Counters::default();
            let count = || {
                for bytes in 1..=200 {
                    counters.add(Kind::Device, bytes);
                    counters.sub(Kind::Device, bytes - 1);
                }
            };
            thread::scope(|scope| {
                scope.spawn(count);
                scope.spawn(|| {
                    (0..round * 10).for_each(|_| std::hint::spin_loop());
                    count();
                });
                count();
            });
            let totals = counters.totals(Kind::Device);
            assert_eq!(
                (totals.bytes, totals.allocated),
                (600, 600),
                "round {round}"
            );
            assert!(totals.peak_bytes >= 600);
        }
    }

    /// Each thread holds up to 8 blocks of its own; the peak is at least what any thread held
    /// itself and at most what all could hold together.
    #[test]
    fn the_peak_is_never_below_what_a_thread_saw() {
        let counters = Counters::default();
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        for _ in 0..8 {
                            counters.add(Kind::Device, 3);
                        }
                        let seen = counters.totals(Kind::Device);
                        assert!(seen.peak_bytes >= seen.bytes && seen.peak_bytes >= 24);
                        (0..8).for_each(|_| counters.sub(Kind::Device, 3));
                    }
                });
            }
        });
        let totals = counters.totals(Kind::Device);
        assert_eq!(
            (totals.count, totals.bytes, totals.allocated),
            (0, 0, 8 * 2_000 * 8)
        );
        assert!((24..=8 * 24).contains(&totals.peak_bytes));
    }
}
