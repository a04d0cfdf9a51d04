//! Counts and bytes by kind, at every level.
//!
//! Both are per thread and summed when they are read: see [`LiveBytes`].

use std::iter::Sum;
use std::ops::{AddAssign, SubAssign};

use crate::kind::ResourceKind;
use crate::live_bytes::LiveBytes;

/// A number of resources and their bytes together.
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
    /// `count` resources with `bytes` together.
    #[must_use]
    pub const fn new(count: u64, bytes: u64) -> Self {
        Self { count, bytes }
    }

    /// Whether both are 0.
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

impl Sum for Amount {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::default(), |mut sum, amount| {
            sum += amount;
            sum
        })
    }
}

impl SubAssign for Amount {
    fn sub_assign(&mut self, less: Self) {
        self.count = self.count.saturating_sub(less.count);
        self.bytes = self.bytes.saturating_sub(less.bytes);
    }
}

/// The figures of one kind in one context.
///
/// Each is exact, but for the peak. While other threads allocate and free, two figures may be of different moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// How many are alive.
    pub count: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The most bytes that were alive at one time. Exact where one thread allocates and frees. Once several threads have taken
    /// turns for a thousand times, it may be too high: for each of them by two of its blocks, 2 MiB at most.
    pub peak_bytes: u64,
    /// How many were ever allocated.
    pub allocated: u64,
}

impl Totals {
    pub(crate) fn of(live: &LiveBytes) -> Self {
        let (allocated, count) = live.counts();
        let bytes = live.live();
        Self {
            count,
            bytes,
            peak_bytes: live.peak().max(bytes),
            allocated,
        }
    }

    /// What is alive.
    #[must_use]
    pub const fn live(self) -> Amount {
        Amount::new(self.count, self.bytes)
    }
}

/// The counters of one context. Relaxed throughout: nothing is published through them.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    bytes: [LiveBytes; ResourceKind::COUNT],
}

impl Counters {
    /// Counts an allocation. Returns how many of the kind the calling thread had counted before.
    #[inline(always)]
    pub(crate) fn add(&self, kind: ResourceKind, bytes: u64) -> u64 {
        self.bytes[kind.index()].add(bytes)
    }

    /// Counts a free.
    #[inline(always)]
    pub(crate) fn sub(&self, kind: ResourceKind, bytes: u64) {
        self.bytes[kind.index()].sub(bytes);
    }

    /// Undoes a [`sub`](Self::sub).
    #[cold]
    pub(crate) fn restore(&self, kind: ResourceKind, bytes: u64) {
        self.bytes[kind.index()].restore(bytes);
    }

    pub(crate) fn totals(&self, kind: ResourceKind) -> Totals {
        Totals::of(&self.bytes[kind.index()])
    }

    pub(crate) fn peak_bytes(&self, kind: ResourceKind) -> u64 {
        self.bytes[kind.index()].raised_peak()
    }

    /// The bytes of devices that are alive, or a little more if threads contend.
    #[inline]
    pub(crate) fn device_bytes(&self) -> u64 {
        let bytes = ResourceKind::OF_DEVICES.map(|kind| self.bytes[kind.index()].bound());
        let sum = bytes.into_iter().fold(0, u64::wrapping_add);
        // Never below zero, also where something was removed twice.
        if sum > i64::MAX as u64 { 0 } else { sum }
    }

    /// The bytes of devices that are alive, for a peak that is watched: exact unless threads allocate and free several kinds at
    /// the same moment.
    pub(crate) fn exact_device_bytes(&self) -> u64 {
        let live = ResourceKind::OF_DEVICES.map(|kind| self.bytes[kind.index()].live());
        let live = live.into_iter().fold(0, u64::saturating_add);
        // The sum over threads has too much of those that allocate while it is added up; the bound has what other threads
        // claimed before it became exact.
        live.min(self.device_bytes())
    }

    /// Whether [`device_bytes`](Self::device_bytes) is exact, though threads contend for it.
    pub(crate) fn set_exact(&self, on: bool) {
        for kind in ResourceKind::OF_DEVICES {
            self.bytes[kind.index()].set_exact(on);
        }
    }

    /// What is alive. A reserved range of addresses is counted without its size, which is no memory.
    pub(crate) fn live(&self) -> Amount {
        let live = ResourceKind::ALL.iter().map(|kind| {
            let live = self.totals(*kind).live();
            match kind {
                ResourceKind::AddressRange => Amount::new(live.count, 0),
                _ => live,
            }
        });
        live.sum()
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::{Amount, Counters};
    use crate::kind::ResourceKind;

    #[test]
    fn totals_follow_allocations_and_frees() {
        let counters = Counters::default();
        counters.add(ResourceKind::Device, 100);
        counters.add(ResourceKind::Device, 50);
        counters.sub(ResourceKind::Device, 100);
        counters.add(ResourceKind::Stream, 0);
        let device = counters.totals(ResourceKind::Device);
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
    fn a_double_remove_does_not_go_below_zero() {
        let counters = Counters::default();
        counters.sub(ResourceKind::Device, 10);
        assert_eq!(counters.live(), Amount::default());
    }

    #[test]
    fn no_byte_is_lost_when_threads_start_at_different_times() {
        for round in 0..300_u64 {
            let counters = Counters::default();
            let count = || {
                for bytes in 1..=200 {
                    counters.add(ResourceKind::Device, bytes);
                    counters.sub(ResourceKind::Device, bytes - 1);
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
            let totals = counters.totals(ResourceKind::Device);
            assert_eq!(
                (totals.bytes, totals.allocated),
                (600, 600),
                "round {round}"
            );
            assert!(totals.peak_bytes >= 600);
        }
    }

    /// Each thread holds up to 8 blocks of its own; the peak is at least what any thread held
    /// itself and at most what all could hold together, and two blocks more each.
    #[test]
    fn the_peak_is_never_below_what_a_thread_saw() {
        let counters = Counters::default();
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        for _ in 0..8 {
                            counters.add(ResourceKind::Device, 3);
                        }
                        let seen = counters.totals(ResourceKind::Device);
                        assert!(seen.peak_bytes >= seen.bytes && seen.peak_bytes >= 24);
                        (0..8).for_each(|_| counters.sub(ResourceKind::Device, 3));
                    }
                });
            }
        });
        let totals = counters.totals(ResourceKind::Device);
        assert_eq!(
            (totals.count, totals.bytes, totals.allocated),
            (0, 0, 8 * 2_000 * 8)
        );
        assert!((24..=8 * (24 + 2 * 3)).contains(&totals.peak_bytes));
    }
}
