//! Records of a program without guards: any thread may free what another one allocated, the caller captures the stack,
//! and one registry has the records of all contexts.
//!
//! Keys are [by address](Key::by_address). Their records are in the table from the start, and never in a thread's buffer:
//! the insert and the remove of the guards' records do not know of them.

use std::sync::atomic::Ordering::Relaxed;

use cuguard_sync::process::is_forked;

use crate::call_site;
use crate::caller;
use crate::counters::Amount;
use crate::group::Group;
use crate::record::{Entry, Key, Record};
use crate::registry::{Registry, set};

impl Registry {
    /// Inserts a resource that the driver just allocated, under a key [by address](Key::by_address), with a stack trace
    /// that the caller captured, innermost frame first. An empty stack is an unknown call site. `context` is the number
    /// of its context, which [`Record::context`] returns.
    ///
    /// Every resource gets a record, whatever the level and the sampling rate.
    ///
    /// ```
    /// use cuguard_registry::{ContextInfo, Entry, Key, Kind, Level, Registry};
    ///
    /// let registry = Registry::new(Level::Stacks, 32);
    /// let key = Key::by_address(Kind::Device, 0x7f00_0000_0000);
    /// let entry = Entry { bytes: 4096, type_name: "", stream: 0 };
    /// registry.insert_stack(key, entry, &[0x5000, 0x6000], 1);
    ///
    /// let snapshot = registry.snapshot(ContextInfo::default());
    /// assert_eq!(snapshot.live[0].origin.stack, [0x5000, 0x6000]);
    /// // On any thread.
    /// std::thread::scope(|scope| scope.spawn(|| registry.remove(key, 4096)).join()).unwrap();
    /// assert!(registry.live().is_zero());
    /// ```
    pub fn insert_stack(&self, key: Key, entry: Entry, stack: &[usize], context: u32) {
        debug_assert!(key.is_by_address(), "{key:?}");
        if is_forked() {
            return;
        }
        set(&self.ever_recorded);
        let call_site = match stack {
            [] => 0,
            _ => call_site::intern_frames(stack, entry.type_name),
        };
        let record = Record::in_context(&entry, call_site, context);
        self.counters.add(key.kind, entry.bytes);
        self.destroyed.forget(key);
        if let Some(old) = self.table.insert(key, record) {
            // Freed by a function that is not recorded.
            self.counters.sub(key.kind, old.bytes());
        }
    }

    /// Removes a record under a key by address. What was destroyed with its context counts as freed late from now on.
    #[inline(never)]
    pub(crate) fn remove_by_address(&self, key: Key) -> Option<Record> {
        let Some((_, record)) = self.table.remove(&key) else {
            self.destroyed.note_late_free(key);
            return None;
        };
        self.counters.sub(key.kind, record.bytes());
        Some(record)
    }

    /// Whether there is a record under this key [by address](Key::by_address), and what it is.
    pub fn get(&self, key: Key) -> Option<Record> {
        debug_assert!(key.is_by_address(), "{key:?}");
        self.table.get(&key).map(|record| *record)
    }

    /// Removes every record of a context that the driver destroyed, in the order of [`drain`](Self::drain), and forgets
    /// them.
    pub fn drain_context(&self, context: u32) -> Vec<(Key, Record)> {
        self.drain_if(|key, record| key.is_by_address() && record.context() == context)
    }

    /// [`drain_context`](Self::drain_context), but for kinds that survive a context, and keeps what was destroyed for
    /// [`destroyed`](Self::destroyed). `survives` says which records stay. Returns how much was destroyed.
    ///
    /// ```
    /// use cuguard_registry::{Amount, Entry, Fate, Key, Kind, Level, Registry};
    ///
    /// let registry = Registry::new(Level::Stacks, 32);
    /// let key = |address| Key::by_address(Kind::Device, address);
    /// let entry = Entry { bytes: 100, type_name: "", stream: 0 };
    /// registry.insert_stack(key(0x1000), entry, &[7], 1);
    /// registry.insert_stack(key(0x2000), entry, &[7], 1);
    /// registry.insert_stack(key(0x3000), entry, &[7], 2);
    /// assert_eq!(registry.destroy_context(1, |_, _| false), Amount::new(2, 200));
    ///
    /// // A free that comes too late.
    /// assert!(registry.remove(key(0x2000), 100).is_none());
    /// let destroyed = registry.destroyed();
    /// assert_eq!(destroyed[0].fate, Fate::DestroyedWithContext);
    /// assert_eq!(destroyed[1].fate, Fate::FreedLate);
    /// assert_eq!(registry.live().bytes, 100);
    /// ```
    pub fn destroy_context(
        &self,
        context: u32,
        survives: impl Fn(&Key, &Record) -> bool,
    ) -> Amount {
        let drained = self.drain_if(|key, record| {
            key.is_by_address() && record.context() == context && !survives(key, record)
        });
        let amounts = drained.iter().map(|(key, record)| {
            let bytes = if key.kind.is_memory() {
                record.bytes()
            } else {
                0
            };
            Amount::new(1, bytes)
        });
        let amount = amounts.sum();
        self.destroyed.add(&drained);
        amount
    }

    /// What was destroyed with its context, and which of it the program freed afterwards, the largest group first.
    pub fn destroyed(&self) -> Vec<Group> {
        self.destroyed.groups(caller::snapshot_time())
    }

    /// Undoes a remove, in figures by call site.
    pub(crate) fn note_put_back(&self, key: Key, record: Record) {
        let _ = (key, record);
    }

    /// Whether anything was ever inserted.
    pub fn ever_recorded(&self) -> bool {
        self.ever_recorded.load(Relaxed)
    }
}
