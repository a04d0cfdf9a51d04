//! What changes in a record while its resource is alive: who owns it, and its label.

use std::sync::atomic::Ordering::Relaxed;

use cuguard_sync::process::is_forked;
use dashmap::mapref::entry::Entry as Slot;

use crate::labels;
use crate::record::{Key, Record};
use crate::recorder;
use crate::registry::{Registry, set};

impl Registry {
    /// Changes a record. A resource without one gets one now, with its size alone. Returns whether there
    /// is a record.
    fn update(&self, key: Key, bytes: u64, change: impl FnOnce(&mut Record)) -> bool {
        match self.flushed_for(key).entry(key) {
            Slot::Occupied(mut slot) => change(slot.get_mut()),
            Slot::Vacant(_) if !self.ever_unrecorded.load(Relaxed) => return false,
            Slot::Vacant(slot) => {
                change(&mut slot.insert(Record::unknown(bytes)));
                set(&self.ever_recorded);
            }
        }
        true
    }

    /// Marks a resource whose guard was dropped where it cannot be freed: it is live, and no leak.
    #[cold]
    pub fn set_deferred(&self, key: Key, bytes: u64) {
        self.update(key, bytes, Record::set_deferred);
    }

    /// Marks a resource whose ownership is released to the program: it is live, and no leak.
    pub fn escape(&self, key: Key, bytes: u64) {
        if is_forked() || !self.update(key, bytes, |record| record.set_escaped(true)) {
            return;
        }
        if self.escaped.insert(key.any_slot(), key.slot).is_none() {
            self.escaped_count.fetch_add(1, Relaxed);
        }
    }

    /// Takes ownership of an escaped resource again, and returns the key that it has. `None` for what did
    /// not escape from here.
    pub fn recapture(&self, key: Key) -> Option<Key> {
        let key = self.take_escaped(key)?;
        self.flushed_for(key).get_mut(&key)?.set_escaped(false);
        Some(key)
    }

    /// Marks a resource whose guard was dropped, and which another resource keeps: the stream that a
    /// buffer is freed on. If the other one leaks, this is an indirect leak.
    pub fn keep(&self, key: Key) {
        if self.ever_recorded.load(Relaxed)
            && let Some(mut record) = self.flushed_for(key).get_mut(&key)
        {
            record.set_kept();
        }
    }

    /// Names a resource, in addition to the label scope that it was allocated in. The last name applies.
    pub fn label(&self, key: Key, label: &str) {
        if !self.ever_recorded.load(Relaxed) || is_forked() {
            return;
        }
        if let Some(mut record) = self.flushed_for(key).get_mut(&key) {
            record.name = labels::intern(label);
            if recorder::is_on() {
                recorder::labelled(key, &record);
            }
        }
        labels::free_unused();
    }

    /// The label of a resource.
    pub fn label_of(&self, key: Key) -> Option<String> {
        let record = self.flushed_for(key).get(&key)?;
        labels::joined(record.scope, record.name)
    }

    /// The key of an escaped resource, with its slot. It no longer counts as escaped.
    pub(crate) fn take_escaped(&self, key: Key) -> Option<Key> {
        let (_, slot) = self.escaped.remove(&key.any_slot())?;
        self.escaped_count.fetch_sub(1, Relaxed);
        Some(Key { slot, ..key })
    }
}
