//! Events: those alive, and what must be known of those that went down with their context.

use std::collections::{BTreeSet, HashMap};
use std::time::Instant;

use crate::handle::Id;
use crate::queue::Mark;

/// How many events of ended contexts are remembered one by one.
const MOST_ORPHANS: usize = 1 << 16;

#[derive(Debug)]
pub(crate) struct Event {
    pub(crate) context: Id,
    pub(crate) flags: u32,
    /// The last record: what must be done for it to have happened, and when it happened.
    pub(crate) record: Option<(Mark, Option<Instant>)>,
}

/// An event ends with its context, also when that is a primary one that comes back to life; asked
/// about it, a real driver says that the context is destroyed. An event that the program destroyed
/// itself is another matter: using that is undefined.
#[derive(Debug, Default)]
pub(crate) struct EventTable {
    alive: HashMap<Id, Event>,
    orphans: BTreeSet<Id>,
    /// Of dead events up to this number it is no longer known how they ended.
    forgotten: Id,
}

impl EventTable {
    pub(crate) fn insert(&mut self, id: Id, event: Event) {
        self.alive.insert(id, event);
    }

    pub(crate) fn get(&self, id: Id) -> Option<&Event> {
        self.alive.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: Id) -> Option<&mut Event> {
        self.alive.get_mut(&id)
    }

    pub(crate) fn remove(&mut self, id: Id) -> Option<Event> {
        self.alive.remove(&id)
    }

    pub(crate) fn len(&self) -> usize {
        self.alive.len()
    }

    /// Ends events because their context ends.
    pub(crate) fn orphan(&mut self, ids: impl IntoIterator<Item = Id>) {
        for id in ids {
            if self.alive.remove(&id).is_some() {
                self.orphans.insert(id);
            }
        }
        while self.orphans.len() > MOST_ORPHANS {
            let oldest = self.orphans.pop_first().unwrap_or(0);
            self.forgotten = self.forgotten.max(oldest);
        }
    }

    /// Whether an event that is not alive went down with its context. Where that is forgotten, the
    /// answer is yes: an error is better than to accuse a program of what it did not do.
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
            table.insert(id, event());
            match id % 3 {
                0 => drop(table.remove(id)),
                _ => table.orphan([id]),
            }
        }
        assert_eq!((table.len(), table.orphans.len()), (0, MOST_ORPHANS));
        assert!(table.is_orphan(299_999) && !table.is_orphan(299_997));
        assert!(table.is_orphan(1));
    }
}
