//! The model: a registry and a driver as plain maps.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::Location;

use cuguard::snapshot::{Amount, Snapshot};
use cuguard::{Context, ResourceKind, TrackingLevel};

use crate::mismatch::{Check, ensure_eq};

/// Kind, and address or handle.
pub type Key = (ResourceKind, u64);

/// The expected record of one resource.
#[derive(Clone, Debug, Default)]
pub struct Record {
    pub bytes: u64,
    pub escaped: bool,
    pub type_name: &'static str,
    pub scope: Option<&'static str>,
    pub name: Option<&'static str>,
    pub site: Option<&'static Location<'static>>,
    pub thread: Option<String>,
    pub stream: u64,
}

impl Record {
    /// The record of a resource that this thread creates now.
    pub fn new(bytes: usize, type_name: &'static str, site: &'static Location<'static>) -> Self {
        let thread = std::thread::current();
        let id = || format!("{:?}", thread.id());
        Self {
            bytes: bytes as u64,
            type_name,
            site: Some(site),
            thread: Some(thread.name().map_or_else(id, str::to_owned)),
            ..Self::default()
        }
    }

    fn label(&self) -> Option<String> {
        match (self.scope, self.name) {
            (Some(scope), Some(name)) => Some(format!("{scope}/{name}")),
            (one, other) => one.or(other).map(str::to_owned),
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Figures {
    live: Amount,
    allocated: u64,
    peak: u64,
}

/// What the records of a snapshot's group have in common.
type Identity = (
    ResourceKind,
    &'static str,
    Option<String>,
    Option<(&'static str, u32)>,
);

#[derive(Debug, Default, PartialEq, Eq)]
struct Group {
    amount: Amount,
    addresses: BTreeSet<u64>,
    threads: BTreeSet<String>,
    streams: BTreeSet<u64>,
}

/// The registry of one context.
#[derive(Debug, Default)]
pub struct Registry {
    pub level: TrackingLevel,
    pub records: BTreeMap<Key, Record>,
    /// Resources created at [`TrackingLevel::Counts`], with their bytes.
    pub unrecorded: BTreeMap<Key, u64>,
    figures: BTreeMap<ResourceKind, Figures>,
}

impl Registry {
    pub fn new(level: TrackingLevel) -> Self {
        Self {
            level,
            ..Self::default()
        }
    }

    fn subtract(&mut self, kind: ResourceKind, bytes: u64) {
        self.figures.entry(kind).or_default().live -= Amount::new(1, bytes);
    }

    pub fn insert(&mut self, key: Key, record: Record) {
        let figures = self.figures.entry(key.0).or_default();
        figures.allocated += 1;
        figures.live += Amount::new(1, record.bytes);
        figures.peak = figures.peak.max(figures.live.bytes);
        // An older record with this key escaped and was freed outside of the crate.
        let stale = if self.level == TrackingLevel::Counts {
            self.unrecorded.insert(key, record.bytes);
            self.records.remove(&key)
        } else {
            self.records.insert(key, record)
        };
        if let Some(stale) = stale {
            self.subtract(key.0, stale.bytes);
        }
    }

    /// Resources that were allocated and freed within one step, all of them live at the same time.
    pub fn pass(&mut self, kind: ResourceKind, count: u64, bytes: u64) {
        let figures = self.figures.entry(kind).or_default();
        figures.allocated += count;
        figures.peak = figures.peak.max(figures.live.bytes + count * bytes);
    }

    pub fn remove(&mut self, key: Key) {
        let recorded = self.records.remove(&key).map(|record| record.bytes);
        if let Some(bytes) = recorded.or_else(|| self.unrecorded.remove(&key)) {
            self.subtract(key.0, bytes);
        }
    }

    pub fn escape(&mut self, key: Key) {
        if let Some(bytes) = self.unrecorded.remove(&key) {
            let unknown = Record {
                bytes,
                ..Record::default()
            };
            self.records.insert(key, unknown);
        }
        if let Some(record) = self.records.get_mut(&key) {
            record.escaped = true;
        }
    }

    /// Takes ownership of an escaped resource, or of one without a record.
    pub fn adopt(&mut self, key: Key, record: Record) {
        match self.records.get_mut(&key) {
            Some(record) => record.escaped = false,
            None => self.insert(key, record),
        }
    }

    pub fn rename(&mut self, key: Key, name: &'static str) {
        if let Some(record) = self.records.get_mut(&key) {
            record.name = Some(name).filter(|name| !name.is_empty());
        }
    }

    fn figures(&self, kind: ResourceKind) -> Figures {
        self.figures.get(&kind).copied().unwrap_or_default()
    }

    pub fn live(&self) -> Amount {
        self.figures.values().map(|figures| figures.live).sum()
    }

    /// The recorded resources that escaped, or those that did not.
    pub fn recorded(&self, escaped: bool) -> Amount {
        let records = self.records.values();
        let records = records.filter(|record| record.escaped == escaped);
        records.map(|record| Amount::new(1, record.bytes)).sum()
    }

    /// What leaks if the context is closed now.
    pub fn leaked(&self) -> Amount {
        let unrecorded = self.unrecorded.values();
        let unrecorded = unrecorded.map(|bytes| Amount::new(1, *bytes));
        unrecorded.chain([self.recorded(false)]).sum()
    }

    /// Compares the figures with the context's own.
    pub fn check_figures(&self, context: &Context) -> Check {
        let live = self.live();
        ensure_eq("live_count", context.live_count(), live.count)?;
        ensure_eq("live_bytes", context.live_bytes(), live.bytes)
    }

    /// Compares everything with the context's own.
    pub fn check(&self, context: &Context) -> Check {
        self.check_figures(context)?;
        for kind in ResourceKind::ALL {
            let (totals, figures) = (context.totals(*kind), self.figures(*kind));
            let word = kind.name();
            ensure_eq(word, totals.live(), figures.live)?;
            ensure_eq(word, totals.allocated, figures.allocated)?;
            ensure_eq(word, totals.peak_bytes, figures.peak)?;
        }
        self.check_snapshot(&context.snapshot())
    }

    pub fn check_snapshot(&self, snapshot: &Snapshot) -> Check {
        for (what, groups, escaped) in [
            ("live resources", &snapshot.live, false),
            ("escaped resources", &snapshot.escaped, true),
        ] {
            let mut found: BTreeMap<Identity, Group> = BTreeMap::new();
            for group in groups {
                let site = group.origin.site.map(|site| (site.file, site.line));
                let identity = (group.kind, group.type_name, group.label.clone(), site);
                // The model does not know stacks: groups that differ in them are merged.
                let sum = found.entry(identity).or_default();
                sum.amount += group.amount;
                sum.addresses.extend(&group.addresses);
                sum.threads
                    .extend(group.threads.iter().map(|name| (*name).to_owned()));
                sum.streams.extend(&group.streams);
            }
            ensure_eq(what, found, self.groups(escaped))?;
        }
        let mut expected: BTreeMap<ResourceKind, Amount> = BTreeMap::new();
        for (key, bytes) in &self.unrecorded {
            *expected.entry(key.0).or_default() += Amount::new(1, *bytes);
        }
        let unrecorded = snapshot.unrecorded.iter().copied().collect();
        ensure_eq("unrecorded resources", unrecorded, expected)?;
        ensure_eq("failed frees", snapshot.failed_frees.len(), 0)?;
        ensure_eq("late drops", snapshot.late_drops.len(), 0)?;
        ensure_eq("`broken`", snapshot.broken, None)
    }

    fn groups(&self, escaped: bool) -> BTreeMap<Identity, Group> {
        let mut groups: BTreeMap<Identity, Group> = BTreeMap::new();
        let records = self.records.iter();
        for (key, record) in records.filter(|(_, record)| record.escaped == escaped) {
            let site = record.site.map(|site| (site.file(), site.line()));
            let identity = (key.0, record.type_name, record.label(), site);
            let group = groups.entry(identity).or_default();
            group.amount += Amount::new(1, record.bytes);
            group.addresses.insert(key.1);
            group.threads.extend(record.thread.clone());
            group
                .streams
                .extend(Some(record.stream).filter(|s| *s != 0));
        }
        groups
    }
}

/// One of the driver's contexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverContext {
    Primary,
    Own(usize),
}

/// What the driver must hold.
#[derive(Debug, Default)]
pub struct Driver {
    pub alive: BTreeMap<Key, (u64, DriverContext)>,
    pub own_contexts: u64,
    pub primary_holders: u64,
}

impl Driver {
    /// Removes what is destroyed with a driver context.
    pub fn end(&mut self, context: DriverContext) {
        self.alive
            .retain(|key, (_, at)| *at != context || outlives_contexts(key.0));
    }

    fn sum(&self, kinds: &[ResourceKind]) -> (u64, u64) {
        let alive = self.alive.iter().filter(|(key, _)| kinds.contains(&key.0));
        alive.fold((0, 0), |sum, (_, (bytes, _))| (sum.0 + 1, sum.1 + bytes))
    }

    /// Compares with the simulated driver's counters, less those before the program.
    pub fn check(&self, before: &cuguard::sim::Counters) -> Check {
        let now = cuguard::sim::live_counters();
        let less = |now: cuguard::sim::Usage, before: cuguard::sim::Usage| {
            (now.count - before.count, now.bytes - before.bytes)
        };
        let device = less(now.device, before.device);
        let pooled = less(now.pooled, before.pooled);
        let managed = less(now.managed, before.managed);
        let registered = less(now.registered, before.registered);
        for (is, kinds) in [
            (device, &[ResourceKind::Device][..]),
            (pooled, &[ResourceKind::StreamOrdered]),
            (managed, &[ResourceKind::Managed]),
            (
                registered,
                &[ResourceKind::Pinned, ResourceKind::Registered],
            ),
            ((now.streams - before.streams, 0), &[ResourceKind::Stream]),
            ((now.events - before.events, 0), &[ResourceKind::Event]),
            ((now.pools - before.pools, 0), &[ResourceKind::MemoryPool]),
        ] {
            ensure_eq(&format!("the driver's {kinds:?}"), is, self.sum(kinds))?;
        }
        let contexts = self.own_contexts + u64::from(self.primary_holders > 0);
        let is = now.contexts - before.contexts;
        ensure_eq("the driver's contexts", is, contexts)?;
        ensure_eq("misuse of the driver", now.misuses, before.misuses)
    }
}

/// Pools and their memory belong to the device.
pub fn outlives_contexts(kind: ResourceKind) -> bool {
    matches!(kind, ResourceKind::StreamOrdered | ResourceKind::MemoryPool)
}
