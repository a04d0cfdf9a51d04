//! What is ordered before what. A stream's clock tells, of other streams, up to which piece of
//! work they come before whatever the stream is given next.
//!
//! Only work that is still to be done matters: what is done comes before everything. So a clock
//! has an entry for each busy stream at most.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::handle::Id;

/// An event takes a copy at each record, which costs nothing: the entries are shared until one
/// side changes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    up_to: Arc<BTreeMap<Id, u64>>,
}

impl Clock {
    /// Whether a piece of work on another stream comes before.
    pub(crate) fn covers(&self, stream: Id, number: u64) -> bool {
        self.up_to.get(&stream).is_some_and(|seen| *seen >= number)
    }

    /// From now on, the work `number` of a stream comes before, and with it all that came before
    /// that. `is_done` tells what needs not be remembered.
    pub(crate) fn join(
        &mut self,
        stream: Id,
        number: u64,
        of_that: &Clock,
        is_done: impl Fn(Id, u64) -> bool,
    ) {
        if is_done(stream, number) || self.covers(stream, number) {
            return;
        }
        let up_to = Arc::make_mut(&mut self.up_to);
        up_to.retain(|stream, number| !is_done(*stream, *number));
        let inherited = of_that.up_to.iter().map(|(s, n)| (*s, *n));
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
        let (mut b, mut c) = (Clock::default(), Clock::default());
        b.join(1, 10, &Clock::default(), NOTHING_DONE);
        c.join(2, 5, &b, NOTHING_DONE);
        assert!(c.covers(2, 5) && c.covers(1, 10) && c.covers(1, 3));
        assert!(!c.covers(2, 6) && !c.covers(1, 11) && !b.covers(2, 1));
    }

    #[test]
    fn a_copy_does_not_change_with_the_original() {
        let mut clock = Clock::default();
        let before = clock.clone();
        clock.join(1, 1, &before.clone(), NOTHING_DONE);
        assert!(clock.covers(1, 1) && !before.covers(1, 1));
    }

    #[test]
    fn what_is_done_is_forgotten() {
        let mut clock = Clock::default();
        for stream in 0..1000 {
            clock.join(stream, 1, &Clock::default(), |other, _| other < stream);
        }
        assert_eq!(clock.up_to.len(), 1);
        clock.join(5, 5, &Clock::default(), |_, _| true);
        assert!(!clock.covers(5, 5));
    }
}
