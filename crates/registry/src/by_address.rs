//! Records of a program without guards: any thread may free what another one allocated, the caller captures the stack,
//! and one registry has the records of all contexts.
//!
//! Keys are [by address](Key::by_address). Their records are in the table from the start, and never in a thread's buffer:
//! the insert and the remove of the guards' records do not know of them.

use std::sync::atomic::Ordering::Relaxed;

use cuguard_sync::clock;
use cuguard_sync::process::is_forked;

use crate::call_site;
use crate::caller;
use crate::counters::Amount;
use crate::group::Group;
use crate::history::{History, Peak};
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
        // Before it is in the table, where another thread finds it.
        let sites = self.sites.get_or_init(Box::default);
        sites.add(
            call_site,
            key.kind,
            entry.bytes,
            record.created_nanoseconds(),
            || self.counters.device_bytes(),
        );
        if let Some(old) = self.table.insert(key, record) {
            // Freed by a function that is not recorded.
            self.counters.sub(key.kind, old.bytes());
            self.note_removed(key, &old);
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
        self.note_removed(key, &record);
        Some(record)
    }

    /// Gives a record another key, with its call site and its age as they are: physical memory whose handle is released
    /// while it is mapped. Returns whether there was a record.
    ///
    /// ```
    /// use cuguard_registry::{Entry, Key, Kind, Level, Registry};
    ///
    /// let registry = Registry::new(Level::Stacks, 32);
    /// let handle = Key::by_address(Kind::Physical, 7);
    /// registry.insert_stack(handle, Entry { bytes: 4096, type_name: "", stream: 0 }, &[7], 1);
    /// assert!(registry.rekey(handle, Key::by_address(Kind::Mapped, 0x7f00_0000_0000)));
    /// assert_eq!(registry.totals(Kind::Mapped).count, 1);
    /// ```
    pub fn rekey(&self, from: Key, to: Key) -> bool {
        let Some(record) = self.remove_by_address(from) else {
            return false;
        };
        self.counters.add(to.kind, record.bytes());
        self.note_put_back(to, &record);
        if let Some(old) = self.table.insert(to, record) {
            self.counters.sub(to.kind, old.bytes());
            self.note_removed(to, &old);
        }
        true
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

    /// Subtracts a record from the figures of its call site, if those are kept.
    pub(crate) fn note_removed(&self, key: Key, record: &Record) {
        if key.is_by_address()
            && let Some(sites) = self.sites.get()
        {
            sites.sub(record.call_site, key.kind, record.bytes());
        }
    }

    /// Undoes [`note_removed`](Self::note_removed).
    pub(crate) fn note_put_back(&self, key: Key, record: &Record) {
        if key.is_by_address()
            && let Some(sites) = self.sites.get()
        {
            let now = clock::nanoseconds();
            let total = || self.counters.device_bytes();
            sites.add(record.call_site, key.kind, record.bytes(), now, total);
        }
    }

    /// What was alive when the memory of devices was at its peak, by call site; of records under keys
    /// [by address](Key::by_address).
    ///
    /// ```
    /// use cuguard_registry::{Entry, Key, Kind, Level, Registry};
    ///
    /// let registry = Registry::new(Level::Stacks, 32);
    /// assert!(registry.peak().is_none());
    /// let key = Key::by_address(Kind::Device, 0x7f00_0000_0000);
    /// registry.insert_stack(key, Entry { bytes: 4096, type_name: "", stream: 0 }, &[7], 1);
    /// registry.remove(key, 4096);
    /// assert_eq!(registry.peak().unwrap().bytes, 4096);
    /// ```
    pub fn peak(&self) -> Option<Peak> {
        self.sites.get()?.peak(clock::nanoseconds())
    }

    /// How the live bytes of call sites changed over the run; of records under keys [by address](Key::by_address).
    pub fn history(&self) -> History {
        let end = caller::snapshot_time().as_nanos() as u64;
        self.sites
            .get()
            .map_or_else(History::default, |sites| sites.history(end))
    }

    /// Whether anything was ever inserted.
    pub fn ever_recorded(&self) -> bool {
        self.ever_recorded.load(Relaxed)
    }
}
