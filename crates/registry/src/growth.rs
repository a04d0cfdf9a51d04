//! Whether the live bytes of a call site keep rising.

use std::time::Duration;

use crate::history::History;

/// Fewer samples in the last half of the run say nothing.
const LEAST_SAMPLES: usize = 8;

/// The last half of the run is compared in this many parts.
const PARTS: u32 = 4;

/// Live bytes that rose over the last half of the run.
///
/// ```
/// use std::time::Duration;
///
/// let growth = cuguard_registry::Growth { from: 100, to: 700, over: Duration::from_secs(3) };
/// assert_eq!(growth.bytes_per_second(), 200);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// The bytes at the start of the last half.
    pub from: u64,
    /// The bytes in the last sample.
    pub to: u64,
    /// The time in between.
    pub over: Duration,
}

impl Growth {
    /// The rate.
    #[must_use]
    pub fn bytes_per_second(&self) -> u64 {
        let grown = u128::from(self.to.saturating_sub(self.from));
        let rate = grown * 1_000_000_000 / self.over.as_nanos().max(1);
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}

impl History {
    /// Whether bytes that were sampled at [`times`](Self::times) keep rising: the least of each quarter of the last half
    /// of the run is more than the least of the quarter before. A cache that is filled and emptied again does not do
    /// that, nor does what is allocated once. A program that still loads its data does.
    ///
    /// ```
    /// use std::time::Duration;
    /// use cuguard_registry::History;
    ///
    /// let times = (0..32).map(Duration::from_secs).collect();
    /// let history = History { end: Duration::from_secs(32), times, ..History::default() };
    /// let rising: Vec<u64> = (0..32).map(|i| i * 10).collect();
    /// let sawtooth: Vec<u64> = (0..32).map(|i| i % 5 * 1000).collect();
    /// assert!(history.growth(&rising).is_some() && history.growth(&sawtooth).is_none());
    /// ```
    #[must_use]
    pub fn growth(&self, bytes: &[u64]) -> Option<Growth> {
        let run = self.end.checked_sub(self.start)?;
        let half = self.start + run / 2;
        let first = self.times.iter().position(|time| *time >= half)?;
        let samples: Vec<(Duration, u64)> = self.times[first..]
            .iter()
            .copied()
            .zip(bytes.get(first..)?.iter().copied())
            .collect();
        if samples.len() < LEAST_SAMPLES {
            return None;
        }
        let (begin, from) = samples[0];
        let (end, to) = samples[samples.len() - 1];
        let mut before = None;
        for part in 0..PARTS {
            let [start, stop] = [part, part + 1].map(|part| half + run * part / (2 * PARTS));
            let inside = |time: &Duration| *time >= start && *time < stop;
            let inside = samples.iter().filter(|(time, _)| inside(time));
            // Without a sample nothing was allocated, so nothing grew.
            let least = inside.map(|(_, bytes)| *bytes).min()?;
            if before.is_some_and(|before| least <= before) {
                return None;
            }
            before = Some(least);
        }
        let growth = Growth {
            from,
            to,
            over: end.saturating_sub(begin),
        };
        (to > from).then_some(growth)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Growth;
    use crate::history::History;

    /// A sample each second of a run of 64 seconds.
    fn growth(bytes: impl Fn(u64) -> u64) -> Option<Growth> {
        let history = History {
            end: Duration::from_secs(64),
            times: (0..64).map(Duration::from_secs).collect(),
            ..History::default()
        };
        let bytes: Vec<u64> = (0..64).map(bytes).collect();
        history.growth(&bytes)
    }

    #[test]
    fn a_leak_grows_and_has_a_rate() {
        let found = growth(|second| 1_000_000 + second * 4096).unwrap();
        assert_eq!(found.bytes_per_second(), 4096);
        assert_eq!(found.over, Duration::from_secs(31));
        // With temporary memory on top of it.
        assert!(growth(|second| second * 4096 + second % 3 * 20_000).is_some());
        // In steps.
        assert!(growth(|second| second / 5 * 4096).is_some());
    }

    #[test]
    fn what_is_steady_does_not_grow() {
        assert_eq!(growth(|_| 4096), None);
        assert_eq!(growth(|_| 0), None);
        // Loaded in the first half.
        assert_eq!(growth(|second| second.min(30) * 4096), None);
        // A cache that is emptied now and then.
        assert_eq!(growth(|second| second % 11 * 4096), None);
        // Once more, at the end.
        assert_eq!(growth(|second| 4096 + second / 60 * 4096), None);
        assert_eq!(growth(|second| (64 - second) * 4096), None);
    }

    #[test]
    fn few_samples_say_nothing() {
        let history = History {
            end: Duration::from_secs(8),
            times: (0..8).map(Duration::from_secs).collect(),
            ..History::default()
        };
        assert_eq!(history.growth(&[0, 1, 2, 3, 4, 5, 6, 7]), None);
        assert_eq!(History::default().growth(&[]), None);
        // Fewer numbers than samples.
        assert_eq!(history.growth(&[0]), None);
    }

    /// The program allocated for a while and then did something else.
    #[test]
    fn the_run_ends_now_and_not_with_the_last_sample() {
        let history = History {
            end: Duration::from_secs(1000),
            times: (0..64).map(Duration::from_secs).collect(),
            ..History::default()
        };
        let bytes: Vec<u64> = (0..64).collect();
        assert_eq!(history.growth(&bytes), None);
    }
}
