//! What must be: a registry and a driver in the plainest form.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::Location;

use cuguard::{Kind, Level};

use cuguard::snapshot::{Amount, Snapshot};

use crate::wrong::{Answer, ensure_eq};

/// What a thing is known by.
pub type Key = (Kind, u64);

/// What the registry is to know of one thing.
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

/// What makes a group of a snapshot.
type Identity = (
    Kind,
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
    pub level: Level,
    pub records: BTreeMap<Key, Record>,
    /// What was made at level *counts*.
    pub bare: BTreeMap<Key, u64>,
    figures: BTreeMap<Kind, Figures>,
}

impl Registry {
    pub fn new(level: Level) -> Self {
        Self {
            level,
            ..Self::default()
        }
    }

    fn gone(&mut self, kind: Kind, bytes: u64) {
        self.figures.entry(kind).or_default().live -= Amount::new(1, bytes);
    }

    pub fn insert(&mut self, key: Key, record: Record) {
        let figures = self.figures.entry(key.0).or_default();
        figures.allocated += 1;
        figures.live += Amount::new(1, record.bytes);
        figures.peak = figures.peak.max(figures.live.bytes);
        // What is there already was given away and freed by others.
        let stale = if self.level == Level::Counts {
            self.bare.insert(key, record.bytes);
            self.records.remove(&key)
        } else {
            self.records.insert(key, record)
        };
        if let Some(stale) = stale {
            self.gone(key.0, stale.bytes);
        }
    }

    pub fn remove(&mut self, key: Key) {
        let recorded = self.records.remove(&key).map(|record| record.bytes);
        if let Some(bytes) = recorded.or_else(|| self.bare.remove(&key)) {
            self.gone(key.0, bytes);
        }
    }

    pub fn escape(&mut self, key: Key) {
        if let Some(bytes) = self.bare.remove(&key) {
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

    /// Takes back what escaped, or takes in what was never here.
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

    pub fn is_recorded(&self, key: Key) -> bool {
        self.records.contains_key(&key)
    }

    fn figures(&self, kind: Kind) -> Figures {
        self.figures.get(&kind).copied().unwrap_or_default()
    }

    pub fn live(&self) -> Amount {
        let mut sum = Amount::default();
        self.figures
            .values()
            .for_each(|figures| sum += figures.live);
        sum
    }

    /// What leaks if the context ends now.
    pub fn leaked(&self) -> Amount {
        let mut sum = Amount::default();
        let kept = self.records.values().filter(|record| !record.escaped);
        kept.for_each(|record| sum += Amount::new(1, record.bytes));
        self.bare
            .values()
            .for_each(|bytes| sum += Amount::new(1, *bytes));
        sum
    }

    /// Compares the figures with the context's own.
    pub fn check_figures(&self, context: &cuguard::Context) -> Answer {
        let live = self.live();
        ensure_eq("live_count", context.live_count(), live.count)?;
        ensure_eq("live_bytes", context.live_bytes(), live.bytes)
    }

    /// Compares everything with the context's own.
    pub fn check(&self, context: &cuguard::Context) -> Answer {
        self.check_figures(context)?;
        for kind in Kind::ALL {
            let (totals, figures) = (context.totals(*kind), self.figures(*kind));
            let word = kind.name();
            ensure_eq(word, totals.live(), figures.live)?;
            ensure_eq(word, totals.allocated, figures.allocated)?;
            ensure_eq(word, totals.peak_bytes, figures.peak)?;
        }
        self.check_snapshot(&context.snapshot())
    }

    pub fn check_snapshot(&self, snapshot: &Snapshot) -> Answer {
        for (what, groups, escaped) in [
            ("what is in use", &snapshot.live, false),
            ("what escaped", &snapshot.escaped, true),
        ] {
            let mut found: BTreeMap<Identity, Group> = BTreeMap::new();
            for group in groups {
                let site = group.origin.site.map(|site| (site.file, site.line));
                let identity = (group.kind, group.type_name, group.label.clone(), site);
                // Groups that differ in their stacks only are one here.
                let sum = found.entry(identity).or_default();
                sum.amount += group.amount;
                sum.addresses.extend(&group.addresses);
                sum.threads
                    .extend(group.threads.iter().map(|name| (*name).to_owned()));
                sum.streams.extend(&group.streams);
            }
            ensure_eq(what, found, self.groups(escaped))?;
        }
        let mut bare: BTreeMap<Kind, Amount> = BTreeMap::new();
        for (key, bytes) in &self.bare {
            *bare.entry(key.0).or_default() += Amount::new(1, *bytes);
        }
        let unrecorded = snapshot.unrecorded.iter().copied().collect();
        ensure_eq("what has no record", unrecorded, bare)?;
        ensure_eq("frees that failed", snapshot.failed_frees.len(), 0)?;
        ensure_eq("late drops", snapshot.late_drops.len(), 0)?;
        ensure_eq("what is broken", snapshot.broken, None)
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

/// Which of the driver's contexts something is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Home {
    Primary,
    Own(usize),
}

/// What the driver is to have.
#[derive(Debug, Default)]
pub struct Driver {
    pub alive: BTreeMap<Key, (u64, Home)>,
    pub own_contexts: u64,
    pub primary_holders: u64,
}

impl Driver {
    /// Takes away what goes with a context of the driver's: all but what belongs to the device.
    pub fn end(&mut self, home: Home) {
        self.alive
            .retain(|key, (_, at)| *at != home || outlives_contexts(key.0));
    }

    fn sum(&self, kinds: &[Kind]) -> (u64, u64) {
        let alive = self.alive.iter().filter(|(key, _)| kinds.contains(&key.0));
        alive.fold((0, 0), |sum, (_, (bytes, _))| (sum.0 + 1, sum.1 + bytes))
    }

    /// Compares with what the simulated driver counts, less what there was before.
    pub fn check(&self, before: &cuguard::sim::Counters) -> Answer {
        let now = cuguard::sim::live_counters();
        let less = |now: cuguard::sim::Usage, before: cuguard::sim::Usage| {
            (now.count - before.count, now.bytes - before.bytes)
        };
        for (what, is, kinds) in [
            (
                "device memory",
                less(now.device, before.device),
                &[Kind::Device][..],
            ),
            (
                "stream-ordered memory",
                less(now.pooled, before.pooled),
                &[Kind::StreamOrdered],
            ),
            (
                "managed memory",
                less(now.managed, before.managed),
                &[Kind::Managed],
            ),
            (
                "registered memory",
                less(now.registered, before.registered),
                &[Kind::Pinned, Kind::Registered],
            ),
            (
                "streams",
                (now.streams - before.streams, 0),
                &[Kind::Stream],
            ),
            ("events", (now.events - before.events, 0), &[Kind::Event]),
            ("pools", (now.pools - before.pools, 0), &[Kind::MemoryPool]),
        ] {
            ensure_eq(&format!("the driver's {what}"), is, self.sum(kinds))?;
        }
        let contexts = self.own_contexts + u64::from(self.primary_holders > 0);
        let is = now.contexts - before.contexts;
        ensure_eq("the driver's contexts", is, contexts)?;
        ensure_eq("misuse of the driver", now.misuses, before.misuses)
    }
}

/// What does not go with a context: pools and their memory are the device's.
pub fn outlives_contexts(kind: Kind) -> bool {
    matches!(kind, Kind::StreamOrdered | Kind::MemoryPool)
}
