//! Samples: which resources get a record, and from these records to estimates.

use std::hash::{BuildHasher, RandomState};

use super::counters::Amount;
use super::kind::Kind;
use super::names::mix;
use cuguard_sync::per_thread::slot_index;

/// One resource in so many gets a record.
pub(super) struct Sampling {
    pub(super) one_in: u32,
    /// Random, so that each context and each run picks other ones.
    pub(super) seed: u64,
}

impl Default for Sampling {
    /// All of them.
    fn default() -> Self {
        Self { one_in: 1, seed: 0 }
    }
}

impl Sampling {
    pub(super) fn new(one_in: u32) -> Self {
        Self {
            one_in: one_in.max(1),
            // Hashed with the standard library's random keys.
            seed: RandomState::new().hash_one(one_in),
        }
    }

    /// Whether the `nth` resource of a kind that the calling thread's lane creates gets a record. Not
    /// simply every so many: programs repeat themselves, and a step that goes with the program's own
    /// would see one call site always and another one never. And not the same ones in each run: the
    /// first of each kind would be recorded always or never.
    #[inline]
    pub(super) fn picks(&self, kind: Kind, nth: u64) -> bool {
        self.one_in == 1 || {
            let counter = (kind.index() as u64) << 32 | slot_index() as u64;
            mix(mix(self.seed, counter), nth).is_multiple_of(u64::from(self.one_in))
        }
    }
}

/// What the samples of one kind stand for: all that is alive of it, over what they met. The totals
/// are known exactly, so the groups of a kind come to just that, but for what rounding takes.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    pub(super) all: Amount,
    pub(super) met: Amount,
}

/// By kind.
pub(super) type Scales = [Scale; Kind::COUNT];

impl Default for Scale {
    /// Everything stands for itself.
    fn default() -> Self {
        Self {
            all: Amount::new(1, 1),
            met: Amount::new(1, 1),
        }
    }
}

impl Scale {
    pub(super) fn of(self, met: Amount) -> Amount {
        // What is there is at least one.
        let count = share(met.count, self.all.count, self.met.count).max(met.count.min(1));
        Amount::new(count, self.of_bytes(met.bytes))
    }

    pub(super) fn of_bytes(self, bytes: u64) -> u64 {
        share(bytes, self.all.bytes, self.met.bytes)
    }
}

fn share(part: u64, all: u64, met: u64) -> u64 {
    match met {
        0 => part,
        met => {
            u64::try_from(u128::from(part) * u128::from(all) / u128::from(met)).unwrap_or(u64::MAX)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Amount, Scale};

    #[test]
    fn samples_stand_for_what_there_is() {
        let scale = Scale {
            all: Amount::new(1000, 8000),
            met: Amount::new(10, 100),
        };
        assert_eq!(scale.of(Amount::new(3, 30)), Amount::new(300, 2400));
        assert_eq!(scale.of(Amount::default()), Amount::default());
        // Large figures do not overflow on the way.
        let scale = Scale {
            all: Amount::new(u64::MAX, u64::MAX),
            met: Amount::new(u64::MAX, u64::MAX),
        };
        let all = Amount::new(u64::MAX, u64::MAX);
        assert_eq!(scale.of(all), all);
    }

    #[test]
    fn without_samples_everything_stands_for_itself() {
        let amount = Amount::new(7, 70);
        assert_eq!(Scale::default().of(amount), amount);
    }
}
