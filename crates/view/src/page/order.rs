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
    /// When most device memory was in use; none without device memory.
    pub(super) peak: Option<Peak>,
}

/// The moment of the highest use of device memory.
#[derive(Clone, Copy)]
pub(super) struct Peak {
    pub(super) time: u64,
    pub(super) bytes: u64,
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
        // At one time frees come first: an address is freed before it is allocated again. An allocation that ends when it begins is the exception.
        events.sort_unstable_by_key(|event| {
            let rank = match event.is_free {
                true if run.allocations[event.allocation as usize].start >= event.time => 2,
                true => 0,
                false => 1,
            };
            (event.time, rank, event.allocation)
        });
        let peak = peak(run, &events);
        Self { events, peak }
    }

    /// The position of the last event at or before `time`; none before the first.
    pub(super) fn at(&self, time: u64) -> Option<u32> {
        self.events
            .partition_point(|event| event.time <= time)
            .checked_sub(1)
            .map(|position| position as u32)
    }
}

fn peak(run: &Run, events: &[Event]) -> Option<Peak> {
    let mut live = 0u64;
    let mut peak: Option<Peak> = None;
    for event in events {
        let bytes = device_bytes(run, event.allocation);
        if event.is_free {
            live = live.saturating_sub(bytes);
        } else {
            live = live.saturating_add(bytes);
            if live > peak.map_or(0, |peak| peak.bytes) {
                peak = Some(Peak {
                    time: event.time,
                    bytes: live,
                });
            }
        }
    }
    peak
}

/// The device memory that an allocation takes.
pub(super) fn device_bytes(run: &Run, allocation: u32) -> u64 {
    let allocation = &run.allocations[allocation as usize];
    match run.kinds.get(usize::from(allocation.kind)) {
        Some(kind) if kind.on_device => allocation.bytes,
        _ => 0,
    }
}
