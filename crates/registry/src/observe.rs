//! What is read of a registry: every record, what call sites hold, snapshots.

use std::sync::atomic::Ordering::Relaxed;

use cuguard_sync::lock;
use cuguard_sync::process::is_forked;

use crate::caller;
use crate::collect::{self, RecordingMode};
use crate::counters::Amount;
use crate::group::Fate;
use crate::growth::growth;
use crate::history::SiteHistory;
use crate::kind::ResourceKind;
use crate::names;
use crate::pages::PAGE;
use crate::record::{Key, Record};
use crate::registry::Registry;
use crate::snapshot::{ContextInfo, Snapshot};
use crate::usage::{MemoryUsage, NAMED, Trends, UsageBuilder};

impl Registry {
    /// Visits every record, in no order. `visit` must not call this registry.
    pub fn for_each(&self, mut visit: impl FnMut(&Key, &Record)) {
        // `retain` although nothing is removed: the map's iterator counts references for each record,
        // which takes longer than adding it up.
        self.flushed().retain(|key, record| {
            visit(key, record);
            true
        });
    }

    fn usage(&self) -> UsageBuilder {
        let mut usage = UsageBuilder::new(self.created, caller::now());
        self.for_each(|key, record| usage.add(key, record));
        usage
    }

    /// Which call sites grow; only of records under keys by address.
    fn trends(&self) -> Trends {
        let addressed = self.addressed.get();
        addressed.map_or_else(Trends::default, |own| {
            let (steps, sites) = own.sites.steps(caller::now().as_nanos() as u64, || {
                self.flushed();
            });
            let trend = |(id, site): (_, SiteHistory)| (id, growth(&steps, &site.steps));
            sites.into_iter().map(trend).collect()
        })
    }

    fn is_complete(&self) -> bool {
        !self.ever_unrecorded.load(Relaxed)
    }

    /// Remembers what is held now, so that [`memory_usage`](Self::memory_usage) returns growth since.
    pub fn mark_baseline(&self) {
        if !is_forked() {
            let baseline = self.usage().into_baseline();
            *lock(&self.baseline) = Some(baseline);
        }
    }

    /// What is held by each call site, how it grew, and how device memory lies in pages.
    pub fn memory_usage(&self) -> MemoryUsage {
        self.memory_usage_up_to(NAMED)
    }

    /// [`memory_usage`](Self::memory_usage) of the `most` call sites that hold most bytes, where that has 512.
    pub fn memory_usage_up_to(&self, most: usize) -> MemoryUsage {
        let usage = self.usage();
        let live = |kind| self.totals(kind).live();
        let baseline = lock(&self.baseline);
        usage.by_site(
            most,
            baseline.as_ref(),
            &self.trends(),
            self.sample(),
            live,
            self.is_complete(),
        )
    }

    /// [`memory_usage`](Self::memory_usage) of the records that `which` selects. They stand for themselves: nothing is
    /// estimated from samples. `which` must not call this registry.
    ///
    /// ```
    /// use cuguard_registry::{Entry, Key, ResourceKind, TrackingLevel, Registry};
    ///
    /// let registry = Registry::new(TrackingLevel::Stacks, 32);
    /// for (address, context) in [(0x1000, 1), (0x2000, 2)] {
    ///     let entry = Entry { bytes: 16, ..Entry::of_handle("") };
    ///     registry.insert_stack(Key::by_address(ResourceKind::Device, address), entry, &[7], context);
    /// }
    /// let usage = registry.memory_usage_of(|_, record| record.context() == 2);
    /// assert_eq!(usage.sites[0].group.amount.bytes, 16);
    /// ```
    pub fn memory_usage_of(&self, mut which: impl FnMut(&Key, &Record) -> bool) -> MemoryUsage {
        let mut usage = UsageBuilder::new(self.created, caller::now());
        self.for_each(|key, record| {
            if which(key, record) {
                usage.add(key, record);
            }
        });
        let baseline = lock(&self.baseline);
        usage.by_site(
            NAMED,
            baseline.as_ref(),
            &self.trends(),
            1,
            |_| Amount::default(),
            self.is_complete(),
        )
    }

    /// [`memory_usage`](Self::memory_usage) without call sites.
    pub fn memory_usage_by_kind(&self) -> MemoryUsage {
        self.usage().by_kind(self.is_complete())
    }

    /// Visits address and size of the device memory blocks that share pages, but for escaped ones.
    pub(crate) fn for_small_blocks(&self, mut visit: impl FnMut(u64, u64)) {
        self.for_each(|key, record| {
            let bytes = record.bytes();
            if key.kind == ResourceKind::Device && bytes < PAGE && !record.is_escaped() {
                visit(key.address, bytes);
            }
        });
    }

    /// Everything that is known, as plain data. Other threads may continue: what they allocate or free
    /// meanwhile is in it or not. In a forked child it has totals only.
    pub fn snapshot(&self, info: ContextInfo) -> Snapshot {
        self.snapshot_with(info, |_, _| (Fate::Unclassified, None))
    }

    /// [`snapshot`](Self::snapshot), with what `classify` says of each record: groups are kept apart by it. The text is
    /// where the resource is reachable from; each distinct one is kept for the life of the process. `classify` must not
    /// call this registry.
    ///
    /// ```
    /// use cuguard_registry::{ContextInfo, Entry, Fate, Key, ResourceKind, TrackingLevel, Registry};
    ///
    /// let registry = Registry::new(TrackingLevel::Stacks, 32);
    /// for address in [0x1000, 0x2000] {
    ///     let entry = Entry { bytes: 16, ..Entry::of_handle("") };
    ///     registry.insert_stack(Key::by_address(ResourceKind::Device, address), entry, &[7], 1);
    /// }
    /// let snapshot = registry.snapshot_with(ContextInfo::default(), |key, _| match key.address {
    ///     0x1000 => (Fate::Lost, None),
    ///     _ => (Fate::Reachable, Some("the heap")),
    /// });
    /// let fates: Vec<_> = snapshot.live.iter().map(|group| (group.fate, group.holder)).collect();
    /// assert_eq!(fates, [(Fate::Lost, None), (Fate::Reachable, Some("the heap"))]);
    /// ```
    pub fn snapshot_with<'a>(
        &self,
        info: ContextInfo,
        mut classify: impl FnMut(&Key, &Record) -> (Fate, Option<&'a str>),
    ) -> Snapshot {
        let totals = ResourceKind::ALL
            .iter()
            .map(|kind| (*kind, self.totals(*kind)));
        let totals = totals.collect();
        let mut groups = collect::Groups::default();
        let (mut failed, mut late_drops) = (Vec::new(), Vec::new());
        if !is_forked() {
            self.for_each(|key, record| {
                let (fate, holder) = classify(key, record);
                groups.add_classified(key, record, fate, names::intern(holder.unwrap_or_default()));
            });
            failed.clone_from(&lock(&self.failed));
            late_drops = self.late.drops();
        }
        let mode = RecordingMode {
            level: self.level(),
            sample: self.sample(),
        };
        let mut snapshot = Snapshot {
            late_drops,
            broken: self.broken(),
            ..groups.into_snapshot(info, mode, totals, &failed)
        };
        if self.is_complete() && !is_forked() {
            // What other threads were about to record, or have freed since the totals were read.
            snapshot.unrecorded.clear();
        }
        snapshot
    }
}
