//! Vector clocks: which work of other streams happens before whatever is submitted next to a
//! stream.
//!
//! Completed work happens before everything, so a clock has entries for busy streams only.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::handle::Id;

/// Copy-on-write, since an event copies the clock of its stream at each record.
#[derive(Clone, Debug, Default)]
pub(crate) struct VectorClock {
    up_to: Arc<BTreeMap<Id, u64>>,
}

impl VectorClock {
    /// Whether the work `number` of another stream happens before.
    pub(crate) fn covers(&self, stream: Id, number: u64) -> bool {
        self.up_to.get(&stream).is_some_and(|seen| *seen >= number)
    }

    /// Adds the work `number` of a stream and everything in that stream's `clock`, without what
    /// `is_done`.
    pub(crate) fn join(
        &mut self,
        stream: Id,
        number: u64,
        clock: &VectorClock,
        is_done: impl Fn(Id, u64) -> bool,
    ) {
        if is_done(stream, number) || self.covers(stream, number) {
            return;
        }
        let up_to = Arc::make_mut(&mut self.up_to);
        up_to.retain(|stream, number| !is_done(*stream, *number));
        let inherited = clock.up_to.iter().map(|(s, n)| (*s, *n));
        for (stream, number) in inherited.chain([(stream, number)]) {
            if !is_done(stream, number) {
                let seen = up_to.entry(stream).or_default();
                *seen = number.max(*seen);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING_DONE: fn(Id, u64) -> bool = |_, _| false;

    #[test]
    fn what_came_before_the_one_before_comes_before() {
        let (mut b, mut c) = (VectorClock::default(), VectorClock::default());
        b.join(1, 10, &VectorClock::default(), NOTHING_DONE);
        c.join(2, 5, &b, NOTHING_DONE);
        assert!(c.covers(2, 5) && c.covers(1, 10) && c.covers(1, 3));
        assert!(!c.covers(2, 6) && !c.covers(1, 11) && !b.covers(2, 1));
    }

    #[test]
    fn a_copy_does_not_change_with_the_original() {
        let mut clock = VectorClock::default();
        let before = clock.clone();
        clock.join(1, 1, &before.clone(), NOTHING_DONE);
        assert!(clock.covers(1, 1) && !before.covers(1, 1));
    }

    #[test]
    fn what_is_done_is_forgotten() {
        let mut clock = VectorClock::default();
        for stream in 0..1000 {
            clock.join(stream, 1, &VectorClock::default(), |other, _| {
                other < stream
            });
        }
        assert_eq!(clock.up_to.len(), 1);
        clock.join(5, 5, &VectorClock::default(), |_, _| true);
        assert!(!clock.covers(5, 5));
    }
}
