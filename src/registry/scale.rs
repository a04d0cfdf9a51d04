//! From samples to estimates.

use super::counters::Amount;
use super::kind::Kind;

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
