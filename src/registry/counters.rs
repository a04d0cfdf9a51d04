//! How many and how much, by kind: counters that are always on.
//!
//! Bytes are one number for all threads, or there would be no exact peak. Most contexts are used by one
//! thread alone, and an atomic addition takes several times as long as a plain one. So the first thread
//! that allocates owns these numbers and adds with plain loads and stores, until a second thread comes
//! and takes that right away for good: biased locking, with the [barrier](crate::fence) that costs the
//! owner nothing.

use std::ops::{AddAssign, SubAssign};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::{Mutex, PoisonError};

use super::kind::Kind;
use crate::fence;
use crate::lanes::{Lanes, Mine};

/// A number of things and the bytes that they take together.
///
/// ```
/// let mut amount = cuguard::Amount::new(1, 100);
/// amount += cuguard::Amount::new(2, 50);
/// assert_eq!((amount.count, amount.bytes), (3, 150));
/// assert!(cuguard::Amount::default().is_zero());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
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
    /// assert_eq!(cuguard::Amount::new(3, 12).bytes, 12);
    /// ```
    #[must_use]
    pub const fn new(count: u64, bytes: u64) -> Self {
        Self { count, bytes }
    }

    /// Whether there is nothing.
    ///
    /// ```
    /// assert!(!cuguard::Amount::new(1, 0).is_zero());
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
/// let totals = cuguard::Totals::default();
/// assert_eq!((totals.count, totals.bytes, totals.peak_bytes, totals.made), (0, 0, 0, 0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Totals {
    /// How many are alive.
    pub count: u64,
    /// The bytes that they take.
    pub bytes: u64,
    /// The most bytes that were alive at one time. All threads add to and take from one number, and
    /// this is the largest value that it ever had: no value that a thread saw is above it.
    pub peak_bytes: u64,
    /// How many were ever made.
    pub made: u64,
}

impl Totals {
    /// What is alive.
    ///
    /// ```
    /// assert!(cuguard::Totals::default().live().is_zero());
    /// ```
    #[must_use]
    pub const fn live(self) -> Amount {
        Amount::new(self.count, self.bytes)
    }
}

/// How many of each kind one lane of threads made and freed. What one thread makes another may
/// free, so only the sums over all lanes mean something.
#[derive(Debug, Default)]
struct Tally {
    made: [AtomicU64; Kind::COUNT],
    gone: [AtomicU64; Kind::COUNT],
    /// The lane's thread changes bytes that it owns.
    busy: AtomicBool,
}

/// The bytes of one kind. They lie on cache lines of their own (processors fetch them in pairs), so that
/// threads that work with different kinds do not slow each other down.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Bytes {
    live: AtomicU64,
    peak: AtomicU64,
}

/// Who may change the bytes: the lane that owns them, or one of these.
const NOBODY_YET: usize = usize::MAX;
/// A second thread waits until the owner is done.
const CHANGING: usize = usize::MAX - 1;
/// Everybody, atomically.
const EVERYBODY: usize = usize::MAX - 2;

/// The counters of one context. Relaxed throughout but for the owner: nothing is published through them.
#[derive(Debug)]
pub(super) struct Counters {
    tallies: Lanes<Tally>,
    bytes: [Bytes; Kind::COUNT],
    owner: AtomicUsize,
    /// Held by who changes the owner.
    changing: Mutex<()>,
}

impl Default for Counters {
    fn default() -> Self {
        fence::prepare();
        let owner = if fence::is_asymmetric() {
            NOBODY_YET
        } else {
            EVERYBODY
        };
        Self {
            tallies: Lanes::default(),
            bytes: Default::default(),
            owner: AtomicUsize::new(owner),
            changing: Mutex::default(),
        }
    }
}

impl Counters {
    /// Something was made. Answers how many of the kind this lane had made before.
    #[inline]
    pub(super) fn add(&self, kind: Kind, bytes: u64) -> u64 {
        let mine = self.tallies.mine();
        self.add_bytes(&mine, kind, bytes);
        mine.add(|tally| &tally.made[kind.index()], 1)
    }

    #[inline]
    fn add_bytes(&self, mine: &Mine<'_, Tally>, kind: Kind, bytes: u64) {
        if bytes != 0 {
            let number = &self.bytes[kind.index()];
            if !self.as_owner(mine, || number.add_alone(bytes)) {
                number.add(bytes);
            }
        }
    }

    /// Something is gone.
    #[inline]
    pub(super) fn sub(&self, kind: Kind, bytes: u64) {
        let mine = self.tallies.mine();
        mine.add(|tally| &tally.gone[kind.index()], 1);
        if bytes != 0 {
            let number = &self.bytes[kind.index()];
            if !self.as_owner(&mine, || number.sub_alone(bytes)) {
                number.live.fetch_sub(bytes, Relaxed);
            }
        }
    }

    /// Changes the bytes if the calling thread owns them. False where it does not: then everybody may
    /// change them atomically.
    #[inline]
    fn as_owner(&self, mine: &Mine<'_, Tally>, change: impl Fn()) -> bool {
        loop {
            let owner = self.owner.load(Acquire);
            if owner == EVERYBODY {
                return false;
            }
            if let Some((lane, tally)) = mine.alone()
                && lane == owner
            {
                tally.busy.store(true, Relaxed);
                fence::light();
                let still = self.owner.load(Acquire) == lane;
                if still {
                    change();
                }
                tally.busy.store(false, Release);
                if still {
                    return true;
                }
            }
            self.change_owner(mine);
        }
    }

    /// Makes the calling thread the first owner, or takes the bytes from their owner.
    #[cold]
    #[inline(never)]
    fn change_owner(&self, mine: &Mine<'_, Tally>) {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        match (self.owner.load(Acquire), mine.alone()) {
            (EVERYBODY, _) => {}
            (NOBODY_YET, Some((lane, _))) => self.owner.store(lane, Release),
            (NOBODY_YET, None) => self.owner.store(EVERYBODY, Release),
            // It has changed since the caller looked.
            (owner, Some((lane, _))) if owner == lane => {}
            (owner, _) => {
                self.owner.store(CHANGING, SeqCst);
                fence::heavy();
                // Where that is in vain, the process is exiting, and the owner adds once more at most.
                fence::wait_while(&self.tallies.at(owner).busy);
                self.owner.store(EVERYBODY, Release);
            }
        }
    }

    /// Undoes a [`sub`](Self::sub), for what was not freed after all.
    #[cold]
    pub(super) fn restore(&self, kind: Kind, bytes: u64) {
        let mine = self.tallies.mine();
        self.add_bytes(&mine, kind, bytes);
        mine.add(|tally| &tally.gone[kind.index()], 1_u64.wrapping_neg());
    }

    pub(super) fn totals(&self, kind: Kind) -> Totals {
        let index = kind.index();
        // Read before what was made, so that a thing that comes and goes in between is not
        // counted as gone only.
        let gone = sum(self.tallies.all().map(|tally| &tally.gone[index]));
        let made = sum(self.tallies.all().map(|tally| &tally.made[index]));
        let bytes = self.bytes[index].live();
        Totals {
            count: made.saturating_sub(gone),
            bytes,
            // An allocation under way may have added its bytes and not yet raised the peak.
            peak_bytes: self.bytes[index].peak.load(Relaxed).max(bytes),
            made,
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
    /// For the owner.
    #[inline]
    fn add_alone(&self, bytes: u64) {
        let live = self.live.load(Relaxed).wrapping_add(bytes);
        self.live.store(live, Relaxed);
        if self.peak.load(Relaxed) < live {
            self.peak.store(live, Relaxed);
        }
    }

    /// For the owner.
    #[inline]
    fn sub_alone(&self, bytes: u64) {
        let live = self.live.load(Relaxed).wrapping_sub(bytes);
        self.live.store(live, Relaxed);
    }

    /// For everybody.
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
    use crate::registry::kind::Kind;

    #[test]
    fn totals_follow_what_comes_and_goes() {
        let counters = Counters::default();
        counters.add(Kind::Device, 100);
        counters.add(Kind::Device, 50);
        counters.sub(Kind::Device, 100);
        counters.add(Kind::Stream, 0);
        let device = counters.totals(Kind::Device);
        assert_eq!(
            (device.count, device.bytes, device.peak_bytes, device.made),
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

    /// A second thread comes while the first one counts without atomic additions: nothing is lost.
    #[test]
    fn no_byte_is_lost_when_the_owner_changes() {
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
            assert_eq!((totals.bytes, totals.made), (600, 600), "round {round}");
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
            (totals.count, totals.bytes, totals.made),
            (0, 0, 8 * 2_000 * 8)
        );
        assert!((24..=8 * 24).contains(&totals.peak_bytes));
    }
}
