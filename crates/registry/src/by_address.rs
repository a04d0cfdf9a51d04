//! Records of a program without guards: any thread may free what another one allocated, the caller captures the stack,
//! and one registry has the records of all contexts.
//!
//! Keys are [by address](Key::by_address). The newest records are in the buffer of the thread that inserted them, as those of
//! guards are. A key does not say which thread that was: a free looks in the buffer of the calling thread, in the table, and
//! in the buffers of other threads, in this order.

use std::sync::atomic::Ordering::Relaxed;

use cuguard_sync::clock;
use cuguard_sync::process::is_forked;
use dashmap::mapref::entry::Entry as Slot;

use crate::addressed::Addressed;
use crate::caller;
use crate::counters::Amount;
use crate::counters::Totals;
use crate::group::Group;
use crate::history::{History, Peak};
use crate::kind::ResourceKind;
use crate::owner::Owner;
use crate::recent::Reason;
use crate::record::{Entry, Key, Record, Removed};
use crate::recorder;
use crate::registry::{Registry, set};
use crate::trace::Trace;

impl Registry {
    /// Inserts a resource that the driver just allocated, under a key [by address](Key::by_address), with a stack trace
    /// that the caller captured, innermost frame first. An empty stack is an unknown call site. `context` is the number
    /// of its context, which [`Record::context`] returns.
    ///
    /// Every resource gets a record, whatever the level and the sampling rate.
    ///
    /// ```
    /// use cuguard_registry::{ContextInfo, Entry, Key, ResourceKind, TrackingLevel, Registry};
    ///
    /// let registry = Registry::new(TrackingLevel::Stacks, 32);
    /// let key = Key::by_address(ResourceKind::Device, 0x7f00_0000_0000);
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
        self.insert_traced(key, entry, Trace::new(stack), Owner::context(context));
    }

    /// [`insert_stack`](Self::insert_stack) with a stack trace that is interned already.
    #[inline(never)]
    pub fn insert_traced(&self, key: Key, entry: Entry, trace: Trace, owner: Owner) {
        debug_assert!(key.is_by_address(), "{key:?}");
        if is_forked() {
            return;
        }
        set(&self.ever_recorded);
        let record = Record::owned_by(owner, &entry, trace);
        self.counters.add(key.kind, entry.bytes);
        self.destroyed.forget(key);
        let addressed = self.addressed();
        addressed.devices.add(key.kind, owner, entry.bytes);
        if addressed.in_table.may_have(key.address) {
            // Freed by a function that is not recorded.
            let old = self.remove_from_table(key);
            if let Some(old) = old.filter(|_| recorder::is_on()) {
                recorder::replaced(0, key, &old, record.created_nanoseconds());
            }
        }
        if recorder::is_on() {
            recorder::allocated(0, key, &record);
        }
        let put = |key, record| self.put_by_address(key, record);
        match self.recent.insert_by_address(key, record, put) {
            Ok(None) => {}
            Ok(Some(old)) => self.count_removed(key.kind, &old),
            Err(record) => self.put_by_address(key, record),
        }
        if key.kind.is_memory() {
            let total = || self.counters.device_bytes();
            let now = record.created_nanoseconds();
            addressed.sites.observe(now, total, || {
                self.flushed();
            });
            if self.is_watched() {
                self.observe_peak();
            }
        }
    }

    #[inline]
    fn addressed(&self) -> &Addressed {
        self.addressed.get_or_init(Box::default)
    }

    /// Removes what is about to be freed, under a key [by address](Key::by_address) of one of these kinds, whichever
    /// thread allocated it. What was destroyed with its context counts as freed late from now on.
    ///
    /// ```
    /// use cuguard_registry::{Entry, Key, ResourceKind, TrackingLevel, Registry};
    ///
    /// let registry = Registry::new(TrackingLevel::Stacks, 32);
    /// let key = Key::by_address(ResourceKind::Managed, 0x7f00_0000_0000);
    /// registry.insert_stack(key, Entry { bytes: 4096, type_name: "", stream: 0 }, &[7], 1);
    /// let kinds = [ResourceKind::Device, ResourceKind::Managed];
    /// let removed = registry.remove_any(&kinds, 0x7f00_0000_0000).unwrap();
    /// assert_eq!((removed.kind, removed.record.bytes()), (ResourceKind::Managed, 4096));
    /// assert!(registry.remove_any(&kinds, 0x7f00_0000_0000).is_none());
    /// ```
    #[inline(never)]
    pub fn remove_any(&self, kinds: &[ResourceKind], address: u64) -> Option<Removed> {
        if !self.ever_recorded.load(Relaxed) {
            return None;
        }
        let removed = self.recent.remove_by_address(kinds, address);
        match &removed {
            Some(removed) => self.count_removed(removed.kind, &removed.record),
            None => return self.find_any(kinds, address),
        }
        if recorder::is_on()
            && let Some(removed) = &removed
        {
            recorder::freed(0, removed.key(), &removed.record);
        }
        removed
    }

    /// Inserts what [`remove_any`](Self::remove_any) returned again, because it was not freed after all.
    ///
    /// ```
    /// use cuguard_registry::{Entry, Key, Owner, ResourceKind, TrackingLevel, Registry, Trace};
    ///
    /// let registry = Registry::new(TrackingLevel::Stacks, 32);
    /// let entry = Entry { bytes: 4096, type_name: "", stream: 0 };
    /// registry.insert_traced(Key::by_address(ResourceKind::Device, 0x1000), entry, Trace::new(&[7]), Owner::context(1));
    /// let removed = registry.remove_any(&[ResourceKind::Device], 0x1000).unwrap();
    /// registry.put_back_removed(&removed);
    /// assert_eq!(registry.live().bytes, 4096);
    /// ```
    #[cold]
    pub fn put_back_removed(&self, removed: &Removed) {
        self.put_back(removed.key(), Some(removed.record), removed.record.bytes());
    }

    /// Removes what the calling thread does not have among its newest.
    #[inline(never)]
    fn find_any(&self, kinds: &[ResourceKind], address: u64) -> Option<Removed> {
        let keys = kinds.iter().map(|kind| Key::by_address(*kind, address));
        let from_table = || {
            if !self.addressed().in_table.may_have(address) {
                return None;
            }
            let mut keys = keys.clone();
            keys.find_map(|key| {
                Some(Removed {
                    kind: key.kind,
                    address,
                    record: self.remove_from_table(key)?,
                })
            })
        };
        let recorded = |found: Removed| {
            if recorder::is_on() {
                recorder::freed(0, found.key(), &found.record);
            }
            found
        };
        if let Some(found) = from_table() {
            return Some(recorded(found));
        }
        if let Some(slot) = self.recent.holder(kinds, address) {
            self.recent
                .flush(slot, Reason::Free, |key, record| self.put(key, record));
        }
        // Also without a holder: the record may have moved to the table meanwhile.
        let found = from_table();
        if found.is_none() {
            keys.clone()
                .for_each(|key| self.destroyed.note_late_free(key));
        }
        found.map(recorded)
    }

    /// Counts the end of a record by address.
    #[inline]
    fn count_removed(&self, kind: ResourceKind, record: &Record) {
        self.counters.sub(kind, record.bytes());
        self.addressed().devices.sub(kind, record);
    }

    /// Counts a record that is inserted again for its device, if it is one by address.
    #[cold]
    pub(crate) fn count_restored(&self, key: Key, record: &Record) {
        if key.is_by_address() {
            self.addressed().devices.restore(key.kind, record);
        }
    }

    /// Counts a record that was drained for its device, if it is one by address.
    pub(crate) fn count_drained(&self, key: Key, record: &Record) {
        if key.is_by_address() {
            self.addressed().devices.sub(key.kind, record);
        }
    }

    /// Device memory by device, of records under keys [by address](Key::by_address), for devices that ever had some: all kinds
    /// together. `None` is a device that is not known, and memory of the host that a program allocated as such memory.
    ///
    /// ```
    /// use cuguard_registry::{Entry, Key, Owner, Registry, ResourceKind, Trace, TrackingLevel};
    ///
    /// let registry = Registry::new(TrackingLevel::Stacks, 32);
    /// let (key, entry) = (Key::by_address(ResourceKind::Managed, 0x1000), Entry { bytes: 4096, ..Entry::of_handle("") });
    /// registry.insert_traced(key, entry, Trace::new(&[7]), Owner::context(1).on(Some(3)));
    /// registry.remove(key, 4096);
    /// let (device, totals) = registry.device_totals()[0];
    /// assert_eq!((device, totals.bytes, totals.peak_bytes), (Some(3), 0, 4096));
    /// ```
    pub fn device_totals(&self) -> Vec<(Option<u32>, Totals)> {
        let addressed = self.addressed.get();
        addressed.map_or_else(Vec::new, |own| own.devices.totals())
    }

    /// Removes a record by address from the table.
    fn remove_from_table(&self, key: Key) -> Option<Record> {
        let (_, record) = self.table.remove(&key)?;
        self.count_removed(key.kind, &record);
        self.note_removed(key, &record);
        Some(record)
    }

    /// Puts a record by address into the table.
    #[inline(never)]
    pub(crate) fn put_by_address(&self, key: Key, record: Record) {
        let addressed = self.addressed();
        // Before it is in the table, where another thread finds it.
        addressed
            .sites
            .add(record.call_site, key.kind, record.bytes());
        addressed.in_table.add(key.address);
        let old = match self.table.entry(key) {
            // Freed unseen and allocated again on another thread, whose record came first.
            Slot::Occupied(slot) if slot.get().created() > record.created() => Some(record),
            Slot::Occupied(mut slot) => Some(slot.insert(record)),
            Slot::Vacant(slot) => {
                slot.insert(record);
                None
            }
        };
        if let Some(old) = old {
            self.count_removed(key.kind, &old);
            self.note_removed(key, &old);
        }
    }

    /// Gives a record another key, with its call site and its age as they are: physical memory whose handle is released
    /// while it is mapped. Returns whether there was a record.
    ///
    /// ```
    /// use cuguard_registry::{Entry, Key, ResourceKind, TrackingLevel, Registry};
    ///
    /// let registry = Registry::new(TrackingLevel::Stacks, 32);
    /// let handle = Key::by_address(ResourceKind::Physical, 7);
    /// registry.insert_stack(handle, Entry { bytes: 4096, type_name: "", stream: 0 }, &[7], 1);
    /// assert!(registry.rekey(handle, Key::by_address(ResourceKind::Mapped, 0x7f00_0000_0000)));
    /// assert_eq!(registry.totals(ResourceKind::Mapped).count, 1);
    /// ```
    pub fn rekey(&self, from: Key, to: Key) -> bool {
        let Some(Removed { record, .. }) = self.remove_any(&[from.kind], from.address) else {
            return false;
        };
        self.counters.add(to.kind, record.bytes());
        self.addressed().devices.restore(to.kind, &record);
        if recorder::is_on() {
            recorder::allocated_again(0, to, &record);
        }
        self.put_by_address(to, record);
        true
    }

    /// Whether there is a record under this key [by address](Key::by_address), and what it is.
    pub fn get(&self, key: Key) -> Option<Record> {
        debug_assert!(key.is_by_address(), "{key:?}");
        self.flushed_for(key).get(&key).map(|record| *record)
    }

    /// Removes every record of a context that the driver destroyed, in the order of [`drain`](Self::drain), and forgets
    /// them.
    pub fn drain_context(&self, context: u32) -> Vec<(Key, Record)> {
        self.drain_ended(|key, record| key.is_by_address() && record.context() == context)
    }

    /// Removes records of what ended with its context.
    fn drain_ended(&self, is_wanted: impl Fn(&Key, &Record) -> bool) -> Vec<(Key, Record)> {
        let drained = self.drain_if(is_wanted);
        for (key, record) in &drained {
            self.record_reclaimed(*key, record);
        }
        drained
    }

    /// [`drain_context`](Self::drain_context), but for kinds that survive a context, and keeps what was destroyed for
    /// [`destroyed`](Self::destroyed). `survives` says which records stay. Returns how much was destroyed.
    ///
    /// ```
    /// use cuguard_registry::{Amount, Entry, Fate, Key, ResourceKind, TrackingLevel, Registry};
    ///
    /// let registry = Registry::new(TrackingLevel::Stacks, 32);
    /// let key = |address| Key::by_address(ResourceKind::Device, address);
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
        let drained = self.drain_ended(|key, record| {
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

    /// A record is not in the table any more.
    pub(crate) fn note_removed(&self, key: Key, record: &Record) {
        if key.is_by_address()
            && let Some(addressed) = self.addressed.get()
        {
            addressed
                .sites
                .sub(record.call_site, key.kind, record.bytes());
            addressed.in_table.sub(key.address);
        }
    }

    /// What was alive when the memory of devices was at its peak, by call site; of records under keys
    /// [by address](Key::by_address).
    ///
    /// ```
    /// use cuguard_registry::{Entry, Key, ResourceKind, TrackingLevel, Registry};
    ///
    /// let registry = Registry::new(TrackingLevel::Stacks, 32);
    /// assert!(registry.peak().is_none());
    /// let key = Key::by_address(ResourceKind::Device, 0x7f00_0000_0000);
    /// registry.insert_stack(key, Entry { bytes: 4096, type_name: "", stream: 0 }, &[7], 1);
    /// registry.remove(key, 4096);
    /// assert_eq!(registry.peak().unwrap().bytes, 4096);
    /// ```
    pub fn peak(&self) -> Option<Peak> {
        let addressed = self.addressed.get()?;
        addressed.sites.peak(clock::nanoseconds(), || {
            self.flushed();
        })
    }

    /// What call sites held over the run; of records under keys [by address](Key::by_address).
    pub fn history(&self) -> History {
        let end = caller::snapshot_time().as_nanos() as u64;
        let addressed = self.addressed.get();
        addressed.map_or_else(History::default, |own| {
            own.sites.history(end, || {
                self.flushed();
            })
        })
    }

    /// How many operations of the program there were that are neither allocations nor frees, as [`count_work`](Self::count_work) has
    /// them counted: at some times of the run, in nanoseconds of [`cuguard_sync::clock`], and at its end.
    pub fn other_work(&self) -> Vec<(u64, u64)> {
        let end = caller::snapshot_time().as_nanos() as u64;
        let addressed = self.addressed.get();
        addressed.map_or_else(Vec::new, |own| {
            own.sites.other_work(end, || {
                self.flushed();
            })
        })
    }

    /// The exit of the program begins: what it frees from now on is not part of the [`history`](Self::history). A later call
    /// counts instead if memory was allocated since: an interpreter ended, and not the program.
    ///
    /// ```
    /// use cuguard_registry::{Entry, Key, ResourceKind, TrackingLevel, Registry};
    ///
    /// let registry = Registry::new(TrackingLevel::Stacks, 32);
    /// let key = Key::by_address(ResourceKind::Device, 0x7f00_0000_0000);
    /// registry.insert_stack(key, Entry { bytes: 4096, type_name: "", stream: 0 }, &[7], 1);
    /// registry.end_history();
    /// registry.remove(key, 4096);
    /// assert_eq!(registry.history().sites[0].bytes.last(), Some(&4096));
    /// ```
    pub fn end_history(&self) {
        if let Some(addressed) = self.addressed.get() {
            addressed.sites.end_history(clock::nanoseconds(), || {
                self.flushed();
            });
        }
    }

    /// Has operations of the program counted that are neither allocations nor frees, such as kernel launches. `others` returns how many
    /// there were so far.
    ///
    /// ```
    /// use cuguard_registry::{TrackingLevel, Registry};
    ///
    /// let registry = Registry::new(TrackingLevel::Stacks, 32);
    /// registry.count_work(|| 7);
    /// assert_eq!(registry.history().steps.work, [7]);
    /// ```
    pub fn count_work(&self, others: fn() -> u64) {
        self.addressed().sites.count_others(others);
    }

    /// Whether anything was ever inserted.
    pub fn ever_recorded(&self) -> bool {
        self.ever_recorded.load(Relaxed)
    }
}
