//! The registry: the records of one context.

use std::cmp::Reverse;
use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use dashmap::DashMap;

use cuguard_sync::lock;

use crate::addressed::Addressed;
use crate::call_site::{self, MAX_DEPTH};
use crate::caller;
use crate::collect;
use crate::counters::{Amount, Counters, Totals};
use crate::destroyed::Destroyed;
use crate::failed_free::FailedFree;
use crate::hash::{BuildMixHasher, BuildSlotHasher, SLOT_SHARDS};
use crate::kind::{ResourceKind, TrackingLevel};
use crate::late::Late;
use crate::recent::{Reason, RecentRecords, Removed};
use crate::record::{Entry, Key, Record};
use crate::recorder;
use crate::sampling::Sampling;
use crate::snapshot::{FailedCall, FailedFreeGroup};
use crate::usage::Baseline;
use crate::watches::{WATCHED, Watches};

/// Few resources escape.
const ESCAPED_SHARDS: usize = 4;

type Table = DashMap<Key, Record, BuildSlotHasher>;

/// What is alive in one context.
///
/// Every function may be called from every thread. Two calls with the same key never run at the same
/// time, because one guard owns the resource; inserting after the driver allocated and removing before
/// it frees keeps that true when the driver reuses the address.
///
/// In a forked child, locks may be held by threads that do not exist there. Nothing is allocated or
/// freed in it; other functions see no records and change none.
pub struct Registry {
    pub(crate) table: Table,
    /// The newest records of each thread. They move to the table before anything is looked up there; see
    /// [`flushed`](Self::flushed).
    pub(crate) recent: RecentRecords,
    /// The slot of each escaped record, which the caller of `from_raw` does not know.
    pub(crate) escaped: DashMap<Key, u32, BuildMixHasher>,
    /// The length of `escaped`: mostly 0, and then it is not searched.
    pub(crate) escaped_count: AtomicUsize,
    pub(crate) counters: Counters,
    /// What was destroyed with its context; only of records under keys by address.
    pub(crate) destroyed: Destroyed,
    /// What is kept of records under keys by address alone; without those there is none.
    pub(crate) addressed: OnceLock<Box<Addressed>>,
    pub(crate) failed: Mutex<Vec<FailedFree>>,
    pub(crate) late: Arc<Late>,
    broken: OnceLock<FailedCall>,
    not_released: OnceLock<FailedCall>,
    pub(crate) baseline: Mutex<Option<Baseline>>,
    pub(crate) created: Duration,
    /// The [`TrackingLevel`], and [`WATCHED`].
    level: AtomicU8,
    pub(crate) watches: Watches,
    depth: usize,
    sampling: Sampling,
    /// Whether there ever was a record. At level *counts* there is none, and the table is not searched.
    pub(crate) ever_recorded: AtomicBool,
    /// Whether anything was ever allocated without a record. Otherwise an unknown key is not ours, and
    /// the counters stay as they are.
    pub(crate) ever_unrecorded: AtomicBool,
    /// The number of the context in recordings; 0 where each record has its own.
    context: AtomicU32,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("level", &self.level())
            .field("live", &self.live())
            .finish_non_exhaustive()
    }
}

impl Registry {
    /// `depth` is how many frames of each stack trace are recorded, 1 to [`MAX_DEPTH`].
    #[must_use]
    pub fn new(level: TrackingLevel, depth: usize) -> Self {
        Self {
            // Starts the clock before the first record.
            created: caller::now(),
            baseline: Mutex::default(),
            table: Table::with_hasher_and_shard_amount(BuildSlotHasher::default(), SLOT_SHARDS),
            recent: RecentRecords::new(),
            escaped: DashMap::with_hasher_and_shard_amount(
                BuildMixHasher::default(),
                ESCAPED_SHARDS,
            ),
            escaped_count: AtomicUsize::new(0),
            counters: Counters::default(),
            destroyed: Destroyed::default(),
            addressed: OnceLock::new(),
            failed: Mutex::default(),
            late: Arc::default(),
            broken: OnceLock::new(),
            not_released: OnceLock::new(),
            level: AtomicU8::new(level.to_byte()),
            watches: Watches::default(),
            depth: depth.clamp(1, MAX_DEPTH),
            sampling: Sampling::default(),
            ever_recorded: AtomicBool::new(false),
            ever_unrecorded: AtomicBool::new(false),
            context: AtomicU32::new(0),
        }
    }

    /// Sets the number of the context that all records are of, for recordings.
    ///
    /// ```
    /// use cuguard_registry::{TrackingLevel, Registry};
    ///
    /// let registry = Registry::new(TrackingLevel::Stacks, 32).in_context(1);
    /// assert!(registry.live().is_zero());
    /// ```
    #[must_use]
    pub fn in_context(self, number: u32) -> Self {
        self.context.store(number, Relaxed);
        self
    }

    /// The number of the context in recordings.
    #[inline]
    pub(crate) fn context(&self) -> u32 {
        self.context.load(Relaxed)
    }

    /// Records only one resource in `one_in`; all are counted.
    #[must_use]
    pub fn sampling(mut self, one_in: u32) -> Self {
        self.sampling = Sampling::new(one_in);
        if one_in > 1 {
            recorder::sampled(one_in);
        }
        self
    }

    /// Samples the same resources in each run.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn seeded(mut self, seed: u64) -> Self {
        self.sampling.seed = seed;
        self
    }

    /// Inserts a resource that the driver just allocated. `site` is recorded as its call site, and at
    /// level *stacks* the calling stack.
    ///
    /// An escaped address that appears again was freed by its new owner, and its old record is removed.
    /// An address that was freed without its guard is noticed when the table gets its second record.
    #[inline(always)]
    pub fn insert_at(&self, site: &'static Location<'static>, key: Key, entry: Entry) {
        let nth = self.counters.add(key.kind, entry.bytes);
        // All that level *counts* does, and so without a call.
        let is_done = self.level.load(Relaxed) == TrackingLevel::Counts.to_byte()
            && self.escaped_count.load(Relaxed) == 0
            && self.ever_unrecorded.load(Relaxed);
        if !is_done {
            let (stream, type_name) = (entry.stream, entry.type_name);
            self.insert_record(nth, site, key, entry.bytes, stream, type_name);
        }
    }

    /// Takes the fields of an [`Entry`] one by one, so that level *counts* has none in memory.
    #[inline(never)]
    fn insert_record(
        &self,
        nth: u64,
        site: &'static Location<'static>,
        key: Key,
        bytes: u64,
        stream: u64,
        type_name: &'static str,
    ) {
        if self.escaped_count.load(Relaxed) != 0
            && let Some(freed) = self.take_escaped(key)
            && let Some((_, old)) = self.flushed_for(freed).remove(&freed)
        {
            self.counters.sub(key.kind, old.bytes());
            if recorder::is_on() {
                recorder::freed(self.context(), freed, &old);
            }
        }
        let flags = self.level.load(Relaxed);
        let level = TrackingLevel::from_byte(flags & !WATCHED);
        if level == TrackingLevel::Counts || !self.sampling.picks(key.kind, nth) {
            set(&self.ever_unrecorded);
            if flags & WATCHED != 0 {
                self.observe_peak();
            }
            return;
        }
        set(&self.ever_recorded);
        let call_site = call_site::intern(site, type_name, level, self.depth);
        let words = Record::new_words(bytes, stream, call_site);
        if recorder::is_on() {
            recorder::allocated(self.context(), key, &Record::from_words(words));
        }
        let put = |key, words| self.put(key, Record::from_words(words));
        if !self.recent.insert(key, words, put) {
            put(key, words);
        }
        if flags & WATCHED != 0 {
            self.observe_peak();
        }
    }

    /// Puts a record into the table.
    #[inline(never)]
    pub(crate) fn put(&self, key: Key, record: Record) {
        if key.is_by_address() {
            return self.put_by_address(key, record);
        }
        if let Some(old) = self.table.insert(key, record) {
            self.counters.sub(key.kind, old.bytes());
        }
    }

    /// The table with all records.
    pub(crate) fn flushed(&self) -> &Table {
        self.recent.flush_all(|key, record| self.put(key, record));
        &self.table
    }

    /// The table with this record, if there is one.
    pub(crate) fn flushed_for(&self, key: Key) -> &Table {
        self.flushed_because(Reason::Look, key)
    }

    fn flushed_because(&self, reason: Reason, key: Key) -> &Table {
        let slot = match key.is_by_address() {
            true => self.recent.holder(&[key.kind], key.address),
            false => Some(key.slot),
        };
        if let Some(slot) = slot {
            self.recent
                .flush(slot, reason, |key, record| self.put(key, record));
        }
        &self.table
    }

    /// [`insert_at`](Self::insert_at) the calling line.
    #[cfg(test)]
    #[track_caller]
    pub(crate) fn insert(&self, key: Key, entry: Entry) {
        self.insert_at(Location::caller(), key, entry);
    }

    /// Removes a resource that is about to be freed. `bytes` is its size as the guard knows it, for a
    /// resource without a record.
    #[inline(always)]
    pub fn remove(&self, key: Key, bytes: u64) -> Option<Record> {
        if self.ever_recorded.load(Relaxed) {
            return self.remove_record(key, bytes);
        }
        if self.ever_unrecorded.load(Relaxed) {
            self.counters.sub(key.kind, bytes);
        }
        None
    }

    /// As [`remove`](Self::remove), for a free that cannot fail: nothing reads the record any more.
    ///
    /// ```
    /// use cuguard_registry::{Entry, Key, ResourceKind, TrackingLevel, Registry};
    /// use std::panic::Location;
    ///
    /// let registry = Registry::new(TrackingLevel::Sites, 32);
    /// let key = Key::new(ResourceKind::Pooled, 0x7f00_0000_0000);
    /// let entry = Entry { bytes: 4096, type_name: "u8", stream: 0 };
    /// registry.insert_at(Location::caller(), key, entry);
    /// registry.erase(key, 4096);
    /// assert!(registry.live().is_zero());
    /// ```
    #[inline(always)]
    pub fn erase(&self, key: Key, bytes: u64) {
        if self.ever_recorded.load(Relaxed) {
            self.erase_record(key.kind, key.slot, key.address, bytes);
        } else if self.ever_unrecorded.load(Relaxed) {
            self.counters.sub(key.kind, bytes);
        }
    }

    /// Takes the fields of a [`Key`] one by one, which are in registers then.
    #[inline(never)]
    fn erase_record(&self, kind: ResourceKind, slot: u32, address: u64, bytes: u64) {
        let key = Key {
            kind,
            slot,
            address,
        };
        let erased = match recorder::is_on() || key.is_by_address() {
            true => None,
            false => self.recent.erase(key),
        };
        match erased {
            Some(bytes) => self.counters.sub(key.kind, bytes),
            None => drop(self.remove_record(key, bytes)),
        }
    }

    #[inline(never)]
    fn remove_record(&self, key: Key, bytes: u64) -> Option<Record> {
        if key.is_by_address() {
            let removed = self.remove_any(&[key.kind], key.address);
            return removed.map(|removed| removed.record);
        }
        let record = match self.recent.remove(key) {
            Removed::Record(record) => Some(record),
            Removed::InTable => self.table.remove(&key).map(|(_, record)| record),
            Removed::Elsewhere => self.find_and_remove(key),
        };
        match record {
            Some(record) => {
                self.counters.sub(key.kind, record.bytes());
                if recorder::is_on() {
                    recorder::freed(self.context(), key, &record);
                }
            }
            None if self.ever_unrecorded.load(Relaxed) => self.counters.sub(key.kind, bytes),
            None => {}
        }
        record
    }

    /// Removes a record that may be among the newest of another thread.
    #[inline(never)]
    fn find_and_remove(&self, key: Key) -> Option<Record> {
        let removed = self.table.remove(&key);
        let removed = removed.or_else(|| self.flushed_because(Reason::Free, key).remove(&key));
        removed.map(|(_, record)| record)
    }

    /// Inserts what [`remove`](Self::remove) returned again, because it was not freed after all.
    #[cold]
    pub fn put_back(&self, key: Key, record: Option<Record>, bytes: u64) {
        match record {
            Some(record) => {
                self.counters.restore(key.kind, record.bytes());
                self.count_restored(key, &record);
                if recorder::is_on() {
                    recorder::allocated_again(self.context(), key, &record);
                }
                self.put(key, record);
            }
            None if self.ever_unrecorded.load(Relaxed) => self.counters.restore(key.kind, bytes),
            None => {}
        }
    }

    /// Removes every record that did not escape, in the order in which teardown frees: memory, then
    /// events, streams, modules, pools; within a kind the newest first. Call
    /// [`record_reclaimed`](Self::record_reclaimed) for what is freed then.
    pub fn drain(&self) -> Vec<(Key, Record)> {
        self.drain_if(|_, record| !record.is_escaped())
    }

    /// Removes every record of a resource that was dropped and could not be freed.
    pub fn drain_deferred(&self) -> Vec<(Key, Record)> {
        self.drain_if(|_, record| record.is_deferred())
    }

    pub(crate) fn drain_if(&self, is_wanted: impl Fn(&Key, &Record) -> bool) -> Vec<(Key, Record)> {
        let mut drained = Vec::new();
        self.flushed().retain(|key, record| {
            let remove = is_wanted(key, record);
            if remove {
                drained.push((*key, *record));
            }
            !remove
        });
        for (key, record) in &drained {
            self.counters.sub(key.kind, record.bytes());
            self.count_drained(*key, record);
            self.note_removed(*key, record);
        }
        drained.sort_unstable_by_key(|(key, record)| {
            let kind = (key.kind.teardown_rank(), key.kind);
            (kind, Reverse(record.created()), key.address)
        });
        drained
    }

    /// Records that a drained resource was freed: by its context's teardown, or because its guard was dropped before.
    ///
    /// ```
    /// use cuguard_registry::{TrackingLevel, Registry};
    ///
    /// let registry = Registry::new(TrackingLevel::Stacks, 32);
    /// for (key, record) in registry.drain() {
    ///     registry.record_reclaimed(key, &record);
    /// }
    /// ```
    pub fn record_reclaimed(&self, key: Key, record: &Record) {
        if recorder::is_on() {
            match record.is_deferred() {
                true => recorder::freed(self.context(), key, record),
                false => recorder::reclaimed(self.context(), key, record),
            }
        }
    }

    /// Keeps a free that the driver refused.
    pub fn file_failed_free(&self, failed: FailedFree) {
        lock(&self.failed).push(failed);
    }

    /// The failed frees so far.
    pub fn failed_frees(&self) -> Vec<FailedFreeGroup> {
        let failed = lock(&self.failed).clone();
        collect::failed_frees(&failed, caller::snapshot_time())
    }

    /// Keeps the first error that left the context unusable.
    pub fn note_broken(&self, error: FailedCall) {
        let _ = self.broken.set(error);
    }

    /// The first error that left the context unusable.
    pub fn broken(&self) -> Option<FailedCall> {
        self.broken.get().copied()
    }

    /// Keeps the error with which the driver did not release the context.
    pub fn note_not_released(&self, error: FailedCall) {
        let _ = self.not_released.set(error);
    }

    /// The error with which the driver did not release the context.
    pub fn not_released(&self) -> Option<FailedCall> {
        self.not_released.get().copied()
    }

    /// Counts a guard that was dropped after its context was torn down.
    pub fn count_late_drop(&self, kind: ResourceKind, bytes: u64) {
        self.late.count(kind, bytes);
    }

    /// The late drops, which may outlive the registry.
    pub fn late(&self) -> &Arc<Late> {
        &self.late
    }

    /// One resource in this many is recorded.
    pub fn sample(&self) -> u32 {
        self.sampling.one_in
    }

    /// How much is recorded.
    #[inline]
    pub fn level(&self) -> TrackingLevel {
        TrackingLevel::from_byte(self.level.load(Relaxed) & !WATCHED)
    }

    /// Changes what is recorded from now on. Existing records stay.
    pub fn set_level(&self, level: TrackingLevel) {
        let change = |flags| Some((flags & WATCHED) | level.to_byte());
        let _ = self.level.fetch_update(Relaxed, Relaxed, change);
    }

    /// Whether every allocation is followed by [`observe_peak`](Self::observe_peak).
    pub(crate) fn is_watched(&self) -> bool {
        self.level.load(Relaxed) & WATCHED != 0
    }

    /// Sets [`is_watched`](Self::is_watched).
    pub(crate) fn set_watched(&self, on: bool) {
        match on {
            true => self.level.fetch_or(WATCHED, Relaxed),
            false => self.level.fetch_and(!WATCHED, Relaxed),
        };
    }

    /// What is alive, of all kinds together, escaped resources included.
    pub fn live(&self) -> Amount {
        self.counters.live()
    }

    /// The figures of one kind.
    pub fn totals(&self, kind: ResourceKind) -> Totals {
        self.counters.totals(kind)
    }

    /// [`Totals::peak_bytes`] of one kind for the price of one load: it may lack what other threads are just allocating.
    pub fn peak_bytes(&self, kind: ResourceKind) -> u64 {
        self.counters.peak_bytes(kind)
    }
}

/// Sets a flag that is mostly set already: reading it does not invalidate other threads' cache lines.
pub(crate) fn set(flag: &AtomicBool) {
    if !flag.load(Relaxed) {
        flag.store(true, Relaxed);
    }
}
