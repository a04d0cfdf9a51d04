//! Events: the live ones, and which others were destroyed with their context.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use super::stream::StreamPosition;
use crate::handle::Id;

/// How many events of destroyed contexts are remembered individually.
const MAX_ORPHANS: usize = 1 << 16;

#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) context: Id,
    pub(crate) flags: u32,
    /// The last record: the position on a stream, and the time at which it completed.
    pub(crate) record: Option<(StreamPosition, Option<Instant>)>,
}

/// An event is destroyed with its context, even if that is a primary context which is retained
/// again later; a real driver then fails with `CUDA_ERROR_CONTEXT_IS_DESTROYED`. The use of an event
/// that the program destroyed is undefined instead.
#[derive(Debug, Default)]
pub(crate) struct EventTable {
    pub(crate) live: HashMap<Id, Event>,
    orphans: BTreeSet<Id>,
    /// For destroyed events up to this id, the reason is no longer known.
    forgotten: Id,
}

impl EventTable {
    /// Notes the time at which a record completes, unless the event was recorded again, or
    /// destroyed, since.
    pub(crate) fn complete_record(&mut self, id: Id, stream: Id, number: u64) {
        if let Some(event) = self.live.get_mut(&id)
            && let Some((position, time)) = &mut event.record
            && (position.stream, position.number) == (stream, number)
        {
            *time = Some(Instant::now());
        }
    }

    /// Destroys the events of a context that is destroyed.
    pub(crate) fn orphan_context(&mut self, context: Id) {
        let events = self
            .live
            .iter()
            .filter(|(_, event)| event.context == context);
        let ids: Vec<_> = events.map(|(id, _)| *id).collect();
        self.orphan(ids);
    }

    fn orphan(&mut self, ids: impl IntoIterator<Item = Id>) {
        for id in ids {
            if self.live.remove(&id).is_some() {
                self.orphans.insert(id);
            }
        }
        while self.orphans.len() > MAX_ORPHANS {
            let oldest = self.orphans.pop_first().unwrap_or(0);
            self.forgotten = self.forgotten.max(oldest);
        }
    }

    /// Whether an event that is not live was destroyed with its context. `true` if that is no longer
    /// known: an error is better than a false report of misuse.
    pub(crate) fn is_orphan(&self, id: Id) -> bool {
        self.orphans.contains(&id) || id <= self.forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event() -> Event {
        Event {
            context: 1,
            flags: 0,
            record: None,
        }
    }

    #[test]
    fn the_end_of_an_event_is_remembered_and_memory_is_not_used_up() {
        let mut table = EventTable::default();
        for id in 1..=300_000 {
            table.live.insert(id, event());
            match id % 3 {
                0 => drop(table.live.remove(&id)),
                _ => table.orphan([id]),
            }
        }
        assert_eq!((table.live.len(), table.orphans.len()), (0, MAX_ORPHANS));
        assert!(table.is_orphan(299_999) && !table.is_orphan(299_997));
        assert!(table.is_orphan(1));
    }
}
