//! Sampling: which resources get a record, and what those records stand for.

use std::hash::{BuildHasher, RandomState};

use cuguard_sync::per_thread::slot_index;

use crate::counters::Amount;
use crate::hash::mix;
use crate::kind::ResourceKind;

/// One resource in `one_in` gets a record.
pub(crate) struct Sampling {
    pub(crate) one_in: u32,
    /// Random, so that each context and each run picks other resources.
    pub(crate) seed: u64,
}

impl Default for Sampling {
    /// Every resource.
    fn default() -> Self {
        Self { one_in: 1, seed: 0 }
    }
}

impl Sampling {
    pub(crate) fn new(one_in: u32) -> Self {
        Self {
            one_in: one_in.max(1),
            // Hashed with the standard library's random keys.
            seed: RandomState::new().hash_one(one_in),
        }
    }

    /// Whether the `nth` resource of a kind that the calling thread counts gets a record. (Where a second thread begins to count,
    /// the first one counts from 0 again.)
    ///
    /// Pseudo-random rather than every Nth: programs repeat themselves, and a period that matches the
    /// program's own would record one call site always and another never. Seeded, because otherwise the
    /// first resource of each kind would be recorded in every run or in none.
    #[inline]
    pub(crate) fn picks(&self, kind: ResourceKind, nth: u64) -> bool {
        self.one_in == 1 || {
            let counter = (kind.index() as u64) << 32 | slot_index() as u64;
            mix(mix(self.seed, counter), nth).is_multiple_of(u64::from(self.one_in))
        }
    }
}

/// What the samples of one kind stand for: the live amount over the sampled one. Totals are exact, so
/// the groups of a kind add up to them, but for rounding. Without samples, records stand for themselves.
#[derive(Clone, Copy, Default)]
pub(crate) struct Scale {
    live: Amount,
    sampled: Amount,
}

impl Scale {
    pub(crate) fn apply(self, sampled: Amount) -> Amount {
        // A group that exists has at least one resource.
        let least = sampled.count.min(1);
        let count = ratio(sampled.count, self.live.count, self.sampled.count).max(least);
        Amount::new(count, self.apply_bytes(sampled.bytes))
    }

    pub(crate) fn apply_bytes(self, bytes: u64) -> u64 {
        ratio(bytes, self.live.bytes, self.sampled.bytes)
    }
}

fn ratio(part: u64, live: u64, sampled: u64) -> u64 {
    match sampled {
        0 => part,
        _ => u64::try_from(u128::from(part) * u128::from(live) / u128::from(sampled))
            .unwrap_or(u64::MAX),
    }
}

/// A [`Scale`] for each kind.
#[derive(Default)]
pub(crate) struct Scales([Scale; ResourceKind::COUNT]);

impl Scales {
    /// From what is `live`, and what is recorded: with `true` because a sample picked it, with `false`
    /// for another reason, and then it stands for itself.
    pub(crate) fn new(
        one_in: u32,
        live: impl Iterator<Item = (ResourceKind, Amount)>,
        recorded: impl Iterator<Item = (ResourceKind, Amount, bool)>,
    ) -> Self {
        let mut scales = Self::default();
        if one_in == 1 {
            return scales;
        }
        for (kind, live) in live {
            let sampled = Amount::default();
            scales.0[kind.index()] = Scale { live, sampled };
        }
        for (kind, amount, sampled) in recorded {
            let scale = &mut scales.0[kind.index()];
            match sampled {
                true => scale.sampled += amount,
                false => scale.live -= amount,
            }
        }
        scales
    }

    pub(crate) fn of(&self, kind: ResourceKind, sampled: bool) -> Scale {
        match sampled {
            true => self.0[kind.index()],
            false => Scale::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Amount, Scale};

    #[test]
    fn samples_stand_for_what_is_live() {
        let scale = Scale {
            live: Amount::new(1000, 8000),
            sampled: Amount::new(10, 100),
        };
        assert_eq!(scale.apply(Amount::new(3, 30)), Amount::new(300, 2400));
        assert_eq!(scale.apply(Amount::default()), Amount::default());
        // Large numbers do not overflow on the way.
        let all = Amount::new(u64::MAX, u64::MAX);
        let scale = Scale {
            live: all,
            sampled: all,
        };
        assert_eq!(scale.apply(all), all);
    }

    #[test]
    fn without_samples_records_stand_for_themselves() {
        let amount = Amount::new(7, 70);
        assert_eq!(Scale::default().apply(amount), amount);
    }
}
