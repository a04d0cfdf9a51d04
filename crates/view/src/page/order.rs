//! The events of a run in order. The position of an event stands for a moment: times may be equal or rounded, positions are exact.

use crate::{FOREVER, Run};

/// The position of what never happens.
pub(super) const NEVER: u32 = u32::MAX;

/// An event: an allocation begins or ends.
#[derive(Clone, Copy)]
pub(super) struct Event {
    pub(super) time: u64,
    /// An index of [`Run::allocations`].
    pub(super) allocation: u32,
    pub(super) is_free: bool,
}

/// All events, in the order in which they happened.
pub(super) struct Order {
    pub(super) events: Vec<Event>,
}

impl Order {
    pub(super) fn of(run: &Run) -> Self {
        let mut events = Vec::with_capacity(run.allocations.len() * 2);
        for (index, allocation) in (0u32..).zip(&run.allocations) {
            events.push(Event {
                time: allocation.start,
                allocation: index,
                is_free: false,
            });
            if allocation.end != FOREVER {
                events.push(Event {
                    time: allocation.end.max(allocation.start),
                    allocation: index,
                    is_free: true,
                });
            }
        }
        // At one time frees come first: an address is freed before it is allocated again. An allocation that ends when it
        // begins is the exception.
        events.sort_unstable_by_key(|event| {
            let rank = match event.is_free {
                true if run.allocations[event.allocation as usize].start >= event.time => 2,
                true => 0,
                false => 1,
            };
            (event.time, rank, event.allocation)
        });
        Self { events }
    }

    /// The position of the last event at or before `time`; none before the first.
    pub(super) fn at(&self, time: u64) -> Option<u32> {
        self.events
            .partition_point(|event| event.time <= time)
            .checked_sub(1)
            .map(|position| position as u32)
    }
}
