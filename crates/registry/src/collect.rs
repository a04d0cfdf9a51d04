//! From records to groups to a snapshot.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use crate::call_site::{self, CallSiteId};
use crate::caller;
use crate::counters::{Amount, Totals};
use crate::failed_free::FailedFree;
use crate::group::{Fate, Group, Grouped, merge_equal};
use crate::kind::{ResourceKind, TrackingLevel};
use crate::labels::LabelTexts;
use crate::names::{self, NameId};
use crate::origin::Origin;
use crate::record::{Key, Record};
use crate::sampling::{Scale, Scales};
use crate::snapshot::{ContextInfo, FailedFreeGroup, Snapshot};

/// Who owns a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Owner {
    Guard,
    /// Ownership was released to the program.
    Escaped,
    /// The guard was dropped, and the free is still to come.
    Deferred,
}

/// What the records of a group have in common, as ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct GroupKey {
    kind: ResourceKind,
    owner: Owner,
    kept: bool,
    pub(crate) call_site: CallSiteId,
    pub(crate) scope: NameId,
    pub(crate) name: NameId,
    fate: Fate,
    holder: NameId,
}

impl GroupKey {
    #[inline]
    pub(crate) fn of(key: &Key, record: &Record) -> Self {
        Self::classified(key, record, Fate::Unclassified, 0)
    }

    #[inline]
    pub(crate) fn classified(key: &Key, record: &Record, fate: Fate, holder: NameId) -> Self {
        Self {
            kind: key.kind,
            owner: match record {
                _ if record.is_escaped() => Owner::Escaped,
                _ if record.is_deferred() => Owner::Deferred,
                _ => Owner::Guard,
            },
            kept: record.is_kept(),
            call_site: record.call_site,
            // Not a name there, but the number of a context.
            scope: if key.is_by_address() { 0 } else { record.scope },
            name: record.name,
            fate,
            holder,
        }
    }

    /// A group without amounts, of records that were created between `first` and `last`.
    pub(crate) fn to_group(
        self,
        labels: &LabelTexts,
        first: Duration,
        last: Duration,
        now: Duration,
    ) -> Group {
        let type_name = call_site::get(self.call_site).map_or("", |site| site.type_name);
        Group {
            label: labels.get(self.scope, self.name),
            origin: Origin::of(self.call_site),
            kept: self.kept,
            fate: self.fate,
            holder: names::text(self.holder),
            oldest: now.saturating_sub(first),
            youngest: now.saturating_sub(last),
            ..Group::new(self.kind, type_name, 0, 0)
        }
    }
}

/// The records of a group, added up.
#[derive(Default)]
struct Sum {
    amount: Amount,
    threads: Vec<NameId>,
    streams: Vec<u64>,
    first_created: Duration,
    last_created: Duration,
    addresses: Vec<u64>,
}

impl Sum {
    fn into_group(
        mut self,
        key: GroupKey,
        labels: &LabelTexts,
        scale: Scale,
        now: Duration,
    ) -> Group {
        self.threads.sort_unstable();
        self.threads.dedup();
        let threads = self.threads.into_iter();
        let mut group = Group {
            amount: scale.apply(self.amount),
            threads: threads.filter_map(caller::thread_name).collect(),
            streams: self.streams,
            addresses: self.addresses,
            ..key.to_group(labels, self.first_created, self.last_created, now)
        };
        group.sort_lists();
        group
    }
}

/// What a registry records.
#[derive(Clone, Copy)]
pub(crate) struct RecordingMode {
    pub(crate) level: TrackingLevel,
    /// One resource in this many is recorded.
    pub(crate) sample: u32,
}

/// Groups of records, filled one record at a time.
#[derive(Default)]
pub(crate) struct Groups {
    grouped: Grouped<GroupKey, Sum>,
    labels: LabelTexts,
    /// Records of kept resources, until it is known what keeps them.
    kept: Vec<(Key, Record, Fate, NameId)>,
}

impl Groups {
    pub(crate) fn add(&mut self, key: &Key, record: &Record) {
        self.add_classified(key, record, Fate::Unclassified, 0);
    }

    pub(crate) fn add_classified(
        &mut self,
        key: &Key,
        record: &Record,
        fate: Fate,
        holder: NameId,
    ) {
        match record.is_kept() {
            true => {
                let group = GroupKey::of(key, record);
                self.labels.read(group.scope, group.name);
                self.kept.push((*key, *record, fate, holder));
            }
            false => self.insert(key, record, fate, holder),
        }
    }

    fn insert(&mut self, key: &Key, record: &Record, fate: Fate, holder: NameId) {
        let created = record.created();
        let group = GroupKey::classified(key, record, fate, holder);
        let index = self.grouped.index_of(group, || {
            self.labels.read(group.scope, group.name);
            Sum {
                first_created: created,
                last_created: created,
                ..Sum::default()
            }
        });
        let sum = &mut self.grouped.list[index].1;
        sum.amount += Amount::new(1, record.bytes());
        // Mostly the thread and stream of the record before.
        if sum.threads.last() != Some(&record.thread) {
            sum.threads.push(record.thread);
        }
        let stream = Some(record.stream()).filter(|stream| *stream != 0);
        if stream.is_some() && sum.streams.last() != stream.as_ref() {
            sum.streams.extend(stream);
        }
        sum.first_created = sum.first_created.min(created);
        sum.last_created = sum.last_created.max(created);
        sum.addresses.push(key.address);
    }

    /// Adds the kept resources. What only memory keeps whose own free is deferred, is freed after it.
    fn insert_kept(&mut self) {
        if self.kept.is_empty() {
            return;
        }
        let streams_of = |owner: Owner| -> HashSet<u64> {
            let groups = self.grouped.list.iter();
            let memory = groups.filter(|(key, _)| key.owner == owner);
            memory.flat_map(|(_, sum)| sum.streams.clone()).collect()
        };
        let (live, deferred) = (streams_of(Owner::Guard), streams_of(Owner::Deferred));
        for (key, mut record, fate, holder) in std::mem::take(&mut self.kept) {
            let is_deferred = match key.kind {
                ResourceKind::Stream => {
                    deferred.contains(&key.address) && !live.contains(&key.address)
                }
                // The pool of an allocation is not recorded.
                _ => !deferred.is_empty() && live.is_empty(),
            };
            if is_deferred {
                record.set_deferred();
            }
            self.insert(&key, &record, fate, holder);
        }
    }

    /// What the samples stand for. Escaped and deferred resources always have a record, and so do those
    /// without a call site: they stand for themselves.
    fn scales(&self, mode: RecordingMode, totals: &[(ResourceKind, Totals)]) -> Scales {
        let amounts = self.grouped.list.iter().map(|(key, sum)| {
            let sampled = key.owner == Owner::Guard && key.call_site != 0;
            (key.kind, sum.amount, sampled)
        });
        let live = totals.iter().map(|(kind, totals)| (*kind, totals.live()));
        Scales::new(mode.sample, live, amounts)
    }

    /// The groups by owner, and nothing else of a snapshot.
    fn into_groups(self, scales: &Scales, now: Duration) -> Snapshot {
        let mut groups = Snapshot::default();
        for (key, sum) in self.grouped.list {
            let (list, sampled) = match key.owner {
                Owner::Guard => (&mut groups.live, key.call_site != 0),
                Owner::Escaped => (&mut groups.escaped, false),
                Owner::Deferred => (&mut groups.deferred, false),
            };
            list.push(sum.into_group(key, &self.labels, scales.of(key.kind, sampled), now));
        }
        merge(&mut groups.live);
        merge(&mut groups.escaped);
        merge(&mut groups.deferred);
        groups
    }

    pub(crate) fn into_snapshot(
        mut self,
        info: ContextInfo,
        mode: RecordingMode,
        mut totals: Vec<(ResourceKind, Totals)>,
        failed: &[FailedFree],
    ) -> Snapshot {
        let now = caller::snapshot_time();
        self.insert_kept();
        let scales = self.scales(mode, &totals);
        let groups = self.into_groups(&scales, now);
        let unrecorded = unrecorded(&totals, &groups);
        totals.retain(|(_, totals)| totals.allocated != 0);
        Snapshot {
            info,
            level: mode.level,
            sample: mode.sample,
            taken_at: now,
            unrecorded,
            totals,
            failed_frees: failed_frees(failed, now),
            ..groups
        }
    }
}

/// Merges groups that a reader cannot tell apart, and sorts them in the order of a snapshot: the largest
/// first, then by what a reader sees, then the oldest first. Stack traces are addresses, which differ
/// from run to run, so they do not decide; the report, which has names, orders by those.
fn merge(groups: &mut Vec<Group>) {
    merge_equal(
        groups,
        |one, other| {
            let stacks = || one.origin.stack.cmp(other.origin.stack);
            one.identity().cmp(&other.identity()).then_with(stacks)
        },
        |group, more| {
            group.absorb(more);
            group.sort_lists();
        },
    );
    groups.sort_by(|one, other| {
        fn order(group: &Group) -> impl Ord + '_ {
            (group.size_order(), group.identity(), Reverse(group.oldest))
        }
        order(one).cmp(&order(other))
    });
}

/// What is counted and has no record.
fn unrecorded(totals: &[(ResourceKind, Totals)], groups: &Snapshot) -> Vec<(ResourceKind, Amount)> {
    let rest = totals.iter().map(|(kind, totals)| (*kind, totals.live()));
    let mut rest: Vec<_> = rest.collect();
    let recorded = [&groups.live, &groups.escaped, &groups.deferred];
    for group in recorded.into_iter().flatten() {
        if let Some((_, amount)) = rest.iter_mut().find(|(kind, _)| *kind == group.kind) {
            *amount -= group.amount;
        }
    }
    rest.retain(|(_, amount)| amount.count != 0);
    rest
}

/// Groups of failed frees with the same error and call site, the largest first.
pub(crate) fn failed_frees(failed: &[FailedFree], now: Duration) -> Vec<FailedFreeGroup> {
    let mut by_error: HashMap<_, Groups> = HashMap::new();
    for one in failed {
        let error = (one.freed, one.function, one.code, one.code_name);
        let groups = by_error.entry(error).or_default();
        groups.add(&one.key, &one.record.without_flags());
    }
    let mut list = Vec::new();
    for ((freed, function, code, code_name), groups) in by_error {
        let groups = groups.into_groups(&Scales::default(), now).live;
        list.extend(groups.into_iter().map(|allocated| FailedFreeGroup {
            allocated,
            freed: Origin::of(freed),
            function: names::text(function).unwrap_or_default(),
            code,
            code_name: names::text(code_name).unwrap_or_default(),
        }));
    }
    list.sort_by(|one, other| {
        fn order(failed: &FailedFreeGroup) -> impl Ord + '_ {
            let group = &failed.allocated;
            let oldest = Reverse(group.oldest);
            let error = (failed.code, failed.freed.site);
            (group.size_order(), group.identity(), error, oldest)
        }
        order(one).cmp(&order(other))
    });
    list
}
