//! The registry: the records of one context.

use std::cmp::Reverse;
use std::fmt;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry as Slot;

use super::call_site::MAX_DEPTH;
use super::collect::{self, How};
use super::counters::{Amount, Counters, Totals};
use super::holdings::{Adder, Baseline, Holdings, Outline};
use super::kind::{Kind, Level};
use super::late::Late;
use super::names::{self, BuildMix};
use super::pages::PAGE;
use super::recent::{Found, Recent};
use super::record::{BuildByLane, Entry, FailedFree, Key, LANE_SHARDS, Record, place_of};
use super::scale::Sampling;
use super::snapshot::{ContextInfo, FailedCall, FailedFreeGroup, Snapshot};
use cuguard_sync::process::is_forked;

/// Few things are given away.
const STRAY_SHARDS: usize = 4;

/// What is alive in one context.
///
/// All functions may be called from all threads at once. Two calls about the same key come from the
/// one guard that owns the thing, and so never at the same time; the order of law 2 (enter after
/// the driver allocated, take out before the driver frees) keeps that true when the driver gives an
/// address out again.
///
/// In a forked child, locks and slots may be held for ever by threads that are not there. Nothing is
/// allocated or freed in it, and what else it can call sees no records and changes none.
pub struct Registry {
    records: DashMap<Key, Record, BuildByLane>,
    /// The newest records of each thread. Who looks for one in `records` has it moved there first; see
    /// [`settled`](Self::settled).
    recent: Recent,
    /// What was given away, with the lane that its record is in. Whoever brings it back does not
    /// know that.
    strays: DashMap<Key, u32, BuildMix>,
    /// How many of them there are: mostly none, and then nobody looks.
    stray_count: AtomicUsize,
    counters: Counters,
    failed: Mutex<Vec<FailedFree>>,
    late: Arc<Late>,
    broken: OnceLock<FailedCall>,
    not_released: OnceLock<FailedCall>,
    /// What was held at the last checkpoint.
    baseline: Mutex<Option<Baseline>>,
    /// When this was made.
    start: Duration,
    level: AtomicU8,
    depth: usize,
    /// Which resources get a record.
    sampling: Sampling,
    /// Whether there ever was a record. At level *counts* there is none, and the table is not even
    /// looked at.
    ever_recorded: AtomicBool,
    /// Whether anything was ever made without a record. Else a key that is not found is nobody's,
    /// and the counters stay as they are.
    ever_unrecorded: AtomicBool,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let live = self.live();
        f.debug_struct("Registry")
            .field("level", &self.level())
            .field("live", &live)
            .finish_non_exhaustive()
    }
}

impl Registry {
    /// `depth` is how many frames of each stack are kept, 1 to [`MAX_DEPTH`].
    pub fn new(level: Level, depth: usize) -> Self {
        Self {
            // The clock starts before the first record.
            start: super::caller::now(),
            baseline: Mutex::default(),
            records: DashMap::with_hasher_and_shard_amount(BuildByLane::default(), LANE_SHARDS),
            recent: Recent::new(),
            strays: DashMap::with_hasher_and_shard_amount(BuildMix::default(), STRAY_SHARDS),
            stray_count: AtomicUsize::new(0),
            counters: Counters::default(),
            failed: Mutex::default(),
            late: Arc::default(),
            broken: OnceLock::new(),
            not_released: OnceLock::new(),
            level: AtomicU8::new(level.to_byte()),
            depth: depth.clamp(1, MAX_DEPTH),
            sampling: Sampling::default(),
            ever_recorded: AtomicBool::new(false),
            ever_unrecorded: AtomicBool::new(false),
        }
    }

    /// Records only one thing in so many; all are counted. For programs that make so much that even
    /// a record is too much.
    #[must_use]
    pub fn sampling(mut self, one_in: u32) -> Self {
        self.sampling = Sampling::new(one_in);
        self
    }

    /// Has the same things recorded in each run.
    #[cfg(test)]
    #[must_use]
    pub fn seeded(mut self, seed: u64) -> Self {
        self.sampling.seed = seed;
        self
    }

    /// Enters what the driver just gave out. `site` is kept as the line that made it, and at level
    /// *stacks* the calling stack.
    ///
    /// An address whose ownership was released and that comes again was freed by its new owner: the old
    /// record goes. What was freed behind this crate's back is known only when its record meets the new
    /// one in the table.
    #[inline]
    pub fn insert_at(&self, site: &'static Location<'static>, key: Key, entry: Entry) {
        let nth = self.counters.add(key.kind, entry.bytes);
        // All that there is to do at level *counts*, and so by itself.
        let counted = self.level() == Level::Counts
            && self.stray_count.load(Relaxed) == 0
            && self.ever_unrecorded.load(Relaxed);
        if !counted {
            self.enter(nth, site, key, entry);
        }
    }

    #[inline(never)]
    fn enter(&self, nth: u64, site: &'static Location<'static>, key: Key, entry: Entry) {
        if self.stray_count.load(Relaxed) != 0
            && let Some(stray) = self.find_stray(key)
        {
            self.forget(stray);
        }
        let level = self.level();
        if level == Level::Counts || !self.sampling.picks(key.kind, nth) {
            set(&self.ever_unrecorded);
            return;
        }
        set(&self.ever_recorded);
        let record = Record::new(entry, place_of(site, entry.type_name, level, self.depth));
        let left = self
            .recent
            .insert(key, record, |key, record| self.put(key, record));
        if let Some(record) = left {
            self.put(key, record);
        }
    }

    /// Puts a record into the table.
    #[inline(never)]
    fn put(&self, key: Key, record: Record) {
        if let Some(old) = self.records.insert(key, record) {
            self.counters.sub(key.kind, old.bytes());
        }
    }

    /// The table, with all records in it that are there now.
    fn settled(&self) -> &DashMap<Key, Record, BuildByLane> {
        self.recent.settle_all(|key, record| self.put(key, record));
        &self.records
    }

    /// The table, with this record in it if there is one.
    fn settled_for(&self, key: Key) -> &DashMap<Key, Record, BuildByLane> {
        self.recent.settle(key, |key, record| self.put(key, record));
        &self.records
    }

    /// [`insert_at`](Self::insert_at) the calling line.
    #[cfg(test)]
    #[track_caller]
    pub fn insert(&self, key: Key, entry: Entry) {
        self.insert_at(Location::caller(), key, entry);
    }

    /// The whole key of what was given away, which is then no longer known as such.
    fn find_stray(&self, key: Key) -> Option<Key> {
        let (_, lane) = self.strays.remove(&key.of_anyone())?;
        self.stray_count.fetch_sub(1, Relaxed);
        Some(Key { lane, ..key })
    }

    /// Takes out a record that is known to be of something that is gone.
    fn forget(&self, key: Key) {
        if let Some((_, old)) = self.settled_for(key).remove(&key) {
            self.counters.sub(key.kind, old.bytes());
        }
    }

    /// Takes out what is about to be freed. `bytes` is its size as the guard knows it, for what has
    /// no record.
    #[inline]
    pub fn remove(&self, key: Key, bytes: u64) -> Option<Record> {
        if self.ever_recorded.load(Relaxed) {
            return self.take_out(key, bytes);
        }
        if self.ever_unrecorded.load(Relaxed) {
            self.counters.sub(key.kind, bytes);
        }
        None
    }

    #[inline(never)]
    fn take_out(&self, key: Key, bytes: u64) -> Option<Record> {
        let record = match self.recent.remove(key) {
            Found::Here(record) => Some(record),
            Found::InTable => self.records.remove(&key).map(|(_, record)| record),
            Found::Hidden => self.find_and_remove(key),
        };
        match record {
            Some(record) => self.counters.sub(key.kind, record.bytes()),
            None if self.ever_unrecorded.load(Relaxed) => self.counters.sub(key.kind, bytes),
            None => {}
        }
        record
    }

    /// Takes a record out that may be among the newest of another thread.
    #[inline(never)]
    fn find_and_remove(&self, key: Key) -> Option<Record> {
        let mut record = self.records.remove(&key);
        if record.is_none() {
            record = self.settled_for(key).remove(&key);
        }
        record.map(|(_, record)| record)
    }

    /// Puts back what [`remove`](Self::remove) returned, as it was not freed after all.
    #[cold]
    pub fn put_back(&self, key: Key, record: Option<Record>, bytes: u64) {
        match record {
            Some(record) => {
                self.counters.restore(key.kind, record.bytes());
                self.put(key, record);
            }
            None if self.ever_unrecorded.load(Relaxed) => self.counters.restore(key.kind, bytes),
            None => {}
        }
    }

    /// Marks what is dropped and can only be freed later: it is live, and no leak. What has no
    /// record gets one, with nothing but its size, so that it is not taken for a leak either.
    #[cold]
    pub fn set_deferred(&self, key: Key, bytes: u64) {
        match self.settled_for(key).entry(key) {
            Slot::Occupied(mut slot) => slot.get_mut().set_deferred(),
            Slot::Vacant(_) if !self.ever_unrecorded.load(Relaxed) => {}
            Slot::Vacant(slot) => {
                slot.insert(Record::unknown(bytes)).set_deferred();
                set(&self.ever_recorded);
            }
        }
    }

    /// Marks as escaped what a guard gives away. What has no record gets one now, with nothing but
    /// its size, so that it is known when it comes back and is not taken for a leak.
    pub fn escape(&self, key: Key, bytes: u64) {
        if is_forked() {
            return;
        }
        match self.settled_for(key).entry(key) {
            Slot::Occupied(mut slot) => slot.get_mut().set_escaped(true),
            Slot::Vacant(_) if !self.ever_unrecorded.load(Relaxed) => return,
            Slot::Vacant(slot) => {
                let mut record = slot.insert(Record::unknown(bytes));
                record.set_escaped(true);
                set(&self.ever_recorded);
            }
        }
        if self.strays.insert(key.of_anyone(), key.lane).is_none() {
            self.stray_count.fetch_add(1, Relaxed);
        }
    }

    /// Takes back what was given away: it has an owner again, under the key that it had. `None` for
    /// what is not known here.
    pub fn recapture(&self, key: Key) -> Option<Key> {
        let key = self.find_stray(key)?;
        self.settled_for(key).get_mut(&key)?.set_escaped(false);
        Some(key)
    }

    /// Notes that the owner of a resource was dropped, and that something else keeps the resource: a
    /// stream that a buffer is to be freed on. Where that leaks, this follows from it.
    pub fn keep(&self, key: Key) {
        if self.ever_recorded.load(Relaxed)
            && let Some(mut record) = self.settled_for(key).get_mut(&key)
        {
            record.set_kept();
        }
    }

    /// Gives one thing a name, in addition to the label scope that it was made in. The last name
    /// holds.
    pub fn label(&self, key: Key, label: &str) {
        if !self.ever_recorded.load(Relaxed) || is_forked() {
            return;
        }
        let name = names::intern(label);
        if let Some(mut record) = self.settled_for(key).get_mut(&key) {
            record.name = name;
        }
    }

    /// Takes every record that did not escape, in the order in which teardown frees: memory, then
    /// events, streams, modules, pools; within a kind what was made last goes first.
    pub fn drain(&self) -> Vec<(Key, Record)> {
        self.take_all(|record| !record.is_escaped())
    }

    /// The same for what was dropped and could not be freed.
    pub fn drain_deferred(&self) -> Vec<(Key, Record)> {
        self.take_all(|record| record.is_deferred())
    }

    fn take_all(&self, wanted: impl Fn(&Record) -> bool) -> Vec<(Key, Record)> {
        let mut taken = Vec::new();
        self.settled().retain(|key, record| {
            let take = wanted(record);
            if take {
                taken.push((*key, *record));
            }
            !take
        });
        for (key, record) in &taken {
            self.counters.sub(key.kind, record.bytes());
        }
        taken.sort_unstable_by_key(|(key, record)| {
            (
                key.kind.teardown_rank(),
                key.kind,
                Reverse(record.born()),
                key.address,
            )
        });
        taken
    }

    /// Keeps what the driver said when it refused to free (law 3).
    pub fn file_failed_free(&self, failed: FailedFree) {
        lock(&self.failed).push(failed);
    }

    /// What the driver refused to free so far.
    pub fn failed_frees(&self) -> Vec<FailedFreeGroup> {
        let failed = lock(&self.failed).clone();
        collect::failed_frees(&failed, super::caller::snapshot_time())
    }

    /// Keeps the first error that left the context unusable.
    pub fn note_broken(&self, broken: FailedCall) {
        let _ = self.broken.set(broken);
    }

    /// The first error that left the context unusable.
    pub fn broken(&self) -> Option<FailedCall> {
        self.broken.get().copied()
    }

    /// Keeps that the driver did not take the context back.
    pub fn note_not_released(&self, refusal: FailedCall) {
        let _ = self.not_released.set(refusal);
    }

    /// Why the driver did not take the context back, if it did not.
    pub fn not_released(&self) -> Option<FailedCall> {
        self.not_released.get().copied()
    }

    /// Counts a guard that was dropped after its context was torn down.
    pub fn count_late_drop(&self, kind: Kind, bytes: u64) {
        self.late.count(kind, bytes);
    }

    /// Their count, which may outlive the registry.
    pub fn late(&self) -> &Arc<Late> {
        &self.late
    }

    /// The label that a thing has.
    pub fn label_of(&self, key: Key) -> Option<String> {
        let record = self.settled_for(key).get(&key)?;
        super::caller::join(names::text(record.scope), names::text(record.name))
    }

    /// One thing in so many is recorded.
    pub fn sample(&self) -> u32 {
        self.sampling.one_in
    }

    /// How much is recorded.
    pub fn level(&self) -> Level {
        Level::from_byte(self.level.load(Relaxed))
    }

    /// Changes what is recorded from now on. Records that are there stay.
    pub fn set_level(&self, level: Level) {
        self.level.store(level.to_byte(), Relaxed);
    }

    /// What is alive, of all kinds together, also what escaped.
    pub fn live(&self) -> Amount {
        self.counters.live()
    }

    /// What there is and was of one kind.
    pub fn totals(&self, kind: Kind) -> Totals {
        self.counters.totals(kind)
    }

    fn add_up(&self) -> Adder {
        let mut adder = Adder::new(self.start, super::caller::now());
        // All are retained. The map's own iterator counts references for each record, which takes
        // longer than to add it up.
        self.settled().retain(|key, record| {
            adder.add(key, record);
            true
        });
        adder
    }

    /// Remembers what is held now, so that [`holdings`](Self::holdings) can tell what grew since.
    pub fn mark(&self) {
        if is_forked() {
            return;
        }
        let baseline = self.add_up().into_baseline();
        *lock(&self.baseline) = Some(baseline);
    }

    /// What is held, by place, with what grew and how device memory lies in pages.
    pub fn holdings(&self) -> Holdings {
        let adder = self.add_up();
        let complete = !self.ever_unrecorded.load(Relaxed);
        let live = |kind| self.totals(kind).live();
        let sampled: Option<&dyn Fn(Kind) -> Amount> = match self.sample() {
            1 => None,
            _ => Some(&live),
        };
        adder.finish(lock(&self.baseline).as_ref(), sampled, complete)
    }

    /// The same without the places.
    pub fn outline(&self) -> Outline {
        let complete = !self.ever_unrecorded.load(Relaxed);
        self.add_up().outline(complete)
    }

    /// Calls `each` with address and size of the blocks of device memory that share pages, less what was
    /// given away.
    pub(super) fn for_small_blocks(&self, mut each: impl FnMut(u64, u64)) {
        self.settled().retain(|key, record| {
            let bytes = record.bytes();
            if key.kind == Kind::Device && bytes < PAGE && !record.is_escaped() {
                each(key.address, bytes);
            }
            true
        });
    }

    /// All that is known, as plain data. Other threads may go on; what they make or free meanwhile
    /// is in it or not. In a forked child it has the totals only.
    pub fn snapshot(&self, info: ContextInfo) -> Snapshot {
        let totals = Kind::ALL
            .iter()
            .map(|kind| (*kind, self.totals(*kind)))
            .collect();
        let mut groups = collect::Groups::default();
        let (mut failed, mut late_drops) = (Vec::new(), Vec::new());
        if !is_forked() {
            for slot in self.settled() {
                groups.add(*slot.key(), *slot.value());
            }
            failed.clone_from(&lock(&self.failed));
            late_drops = self.late.drops();
        }
        let how = How {
            level: self.level(),
            sample: self.sample(),
        };
        let mut snapshot = groups.into_snapshot(info, how, totals, &failed);
        snapshot.late_drops = late_drops;
        snapshot.broken = self.broken();
        snapshot
    }
}

/// Sets a flag. It is set nearly always, and a read does not disturb the other threads.
fn set(flag: &AtomicBool) {
    if !flag.load(Relaxed) {
        flag.store(true, Relaxed);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
