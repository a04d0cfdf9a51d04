//! The samples so far: rates, and the bytes over time.

use std::collections::VecDeque;

use super::sample::Sample;

/// As wide as a terminal.
const KEPT: usize = 1000;

/// The samples so far.
#[derive(Debug)]
pub(super) struct History {
    last: Sample,
    before: Option<Sample>,
    /// Live bytes of device memory, the newest last.
    bytes: VecDeque<u64>,
}

/// Changes in a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Rate {
    pub(super) bytes: f64,
    pub(super) allocations: f64,
}

impl History {
    pub(super) fn new(first: Sample) -> Self {
        Self {
            bytes: VecDeque::from([first.bytes]),
            last: first,
            before: None,
        }
    }

    pub(super) fn push(&mut self, sample: Sample) {
        if self.bytes.len() == KEPT {
            self.bytes.pop_front();
        }
        self.bytes.push_back(sample.bytes);
        self.before = Some(std::mem::replace(&mut self.last, sample));
    }

    pub(super) fn last(&self) -> &Sample {
        &self.last
    }

    /// The newest values, at most so many.
    pub(super) fn newest(&self, most: usize) -> Vec<u64> {
        let skipped = self.bytes.len().saturating_sub(most);
        self.bytes.iter().skip(skipped).copied().collect()
    }

    /// The most bytes of the samples.
    pub(super) fn most(&self) -> u64 {
        self.bytes.iter().copied().max().unwrap_or(0)
    }

    /// Between the last two samples.
    pub(super) fn rate(&self) -> Option<Rate> {
        let before = self.before.as_ref()?;
        let seconds = self.last.seconds - before.seconds;
        let per_second = |new: u64, old: u64| (new as f64 - old as f64) / seconds;
        (seconds > 0.0).then(|| Rate {
            bytes: per_second(self.last.bytes, before.bytes),
            allocations: per_second(self.last.allocated, before.allocated).max(0.0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample::Sample;
    use super::{History, KEPT, Rate};

    fn sample(seconds: f64, bytes: u64, allocated: u64) -> Sample {
        Sample {
            seconds,
            bytes,
            allocated,
            ..Sample::default()
        }
    }

    #[test]
    fn rates_are_those_of_the_last_two_samples() {
        let mut history = History::new(sample(1.0, 100, 1));
        assert_eq!(history.rate(), None);
        history.push(sample(3.0, 500, 11));
        history.push(sample(5.0, 300, 21));
        let rate = Rate {
            bytes: -100.0,
            allocations: 5.0,
        };
        assert_eq!(history.rate(), Some(rate));
        assert_eq!(history.most(), 500);
        assert_eq!(history.newest(2), [500, 300]);
        // A reply of the same moment has no rate.
        history.push(sample(5.0, 300, 21));
        assert_eq!(history.rate(), None);
    }

    #[test]
    fn old_samples_are_dropped() {
        let mut history = History::new(sample(0.0, 0, 0));
        for second in 1..=2 * KEPT {
            history.push(sample(second as f64, second as u64, 0));
        }
        assert_eq!(history.newest(usize::MAX).len(), KEPT);
    }
}
