//! From records to groups: what a snapshot is made of.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::call_site::{self, PlaceId};
use super::caller;
use super::counters::{Amount, Totals};
use super::holdings::Line;
use super::kind::{Kind, Level};
use super::names::{self, BuildMix, NameId};
use super::record::{FailedFree, Key, Record};
use super::scale::{Scale, Scales};
use super::snapshot::{ContextInfo, FailedFreeGroup, Group, Origin, Snapshot};

/// What became of the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    Owned,
    /// Ownership was released to the program.
    Escaped,
    /// It was dropped, and the free is still to come.
    Deferred,
}

/// What the records of a group have in common, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Common {
    kind: u8,
    state: State,
    kept: bool,
    place: PlaceId,
    scope: NameId,
    name: NameId,
}

impl Common {
    #[inline]
    pub(super) fn of(key: &Key, record: &Record) -> Self {
        Self {
            kind: key.kind.index() as u8,
            state: match record {
                _ if record.is_escaped() => State::Escaped,
                _ if record.is_deferred() => State::Deferred,
                _ => State::Owned,
            },
            kept: record.is_kept(),
            place: record.place,
            scope: record.scope,
            name: record.name,
        }
    }

    /// Where it was made, whatever stack led there.
    pub(super) fn line(self) -> Line {
        let place = call_site::get(self.place);
        Line {
            kind: Kind::ALL[usize::from(self.kind)],
            site: place.and_then(|place| place.site),
            type_name: place.map_or("", |place| place.type_name),
            scope: self.scope,
            name: self.name,
        }
    }
}

/// A group that records are being added to.
struct Pile {
    kind: Kind,
    /// What a sample met, and so stands for more where only samples are recorded.
    met: Amount,
    /// What stands for itself alone.
    exact: Amount,
    threads: HashSet<NameId, BuildMix>,
    streams: HashSet<u64, BuildMix>,
    first_born: Duration,
    last_born: Duration,
    addresses: Vec<u64>,
}

/// How a registry records.
#[derive(Clone, Copy)]
pub(super) struct How {
    pub(super) level: Level,
    /// One in so many.
    pub(super) sample: u32,
}

/// Records sorted into groups, one record at a time.
#[derive(Default)]
pub(super) struct Groups {
    piles: HashMap<Common, Pile, BuildMix>,
}

impl Groups {
    fn scales(&self, how: How, totals: &[(Kind, Totals)]) -> Scales {
        let mut scales = Scales::default();
        if how.sample == 1 {
            return scales;
        }
        for (kind, totals) in totals {
            let scale = &mut scales[kind.index()];
            *scale = Scale {
                all: totals.live(),
                met: Amount::default(),
            };
        }
        for (common, pile) in &self.piles {
            let scale = &mut scales[pile.kind.index()];
            scale.all -= pile.exact;
            match common.state {
                State::Owned => scale.met += pile.met,
                // These stand for themselves.
                State::Escaped | State::Deferred => scale.all -= pile.met,
            }
        }
        scales
    }

    pub(super) fn add(&mut self, key: Key, record: Record) {
        let common = Common::of(&key, &record);
        let born = record.born();
        let pile = self.piles.entry(common).or_insert_with(|| Pile {
            kind: key.kind,
            met: Amount::default(),
            exact: Amount::default(),
            threads: HashSet::default(),
            streams: HashSet::default(),
            first_born: born,
            last_born: born,
            addresses: Vec::new(),
        });
        if record.place == 0 {
            // Recorded for another reason than that a sample met it.
            pile.exact += Amount::new(1, record.bytes());
        } else {
            pile.met += Amount::new(1, record.bytes());
        }
        pile.threads.insert(record.thread);
        if record.stream() != 0 {
            pile.streams.insert(record.stream());
        }
        pile.first_born = pile.first_born.min(born);
        pile.last_born = pile.last_born.max(born);
        pile.addresses.push(key.address);
    }

    fn into_groups(self, scales: &Scales, now: Duration) -> Lists {
        let mut lists = Lists::default();
        for (common, pile) in self.piles {
            let (list, scale) = match common.state {
                State::Owned => (&mut lists.owned, scales[pile.kind.index()]),
                State::Escaped => (&mut lists.escaped, Scale::default()),
                State::Deferred => (&mut lists.deferred, Scale::default()),
            };
            list.push(pile.into_group(common, scale, now));
        }
        Lists {
            owned: merged(lists.owned),
            escaped: merged(lists.escaped),
            deferred: merged(lists.deferred),
        }
    }

    pub(super) fn into_snapshot(
        self,
        info: ContextInfo,
        how: How,
        totals: Vec<(Kind, Totals)>,
        failed: &[FailedFree],
    ) -> Snapshot {
        let now = caller::snapshot_time();
        let scales = self.scales(how, &totals);
        let lists = self.into_groups(&scales, now);
        Snapshot {
            info,
            level: how.level,
            sample: how.sample,
            taken_at: now,
            unrecorded: unrecorded(&totals, &lists),
            totals: totals
                .into_iter()
                .filter(|(_, totals)| totals.allocated != 0)
                .collect(),
            live: lists.owned,
            escaped: lists.escaped,
            deferred: lists.deferred,
            failed_frees: failed_frees(failed, now),
            late_drops: Vec::new(),
            broken: None,
            not_released: None,
            dropped: None,
        }
    }
}

/// Groups by what became of their owners.
#[derive(Default)]
struct Lists {
    owned: Vec<Group>,
    escaped: Vec<Group>,
    deferred: Vec<Group>,
}

impl Pile {
    fn into_group(mut self, common: Common, scale: Scale, now: Duration) -> Group {
        let mut group = to_group(common, (self.first_born, self.last_born), now);
        group.amount = self.exact;
        group.amount += scale.of(self.met);
        self.addresses.sort_unstable();
        let threads = self.threads.into_iter();
        let mut threads: Vec<_> = threads.filter_map(caller::thread_name).collect();
        threads.sort_unstable();
        let mut streams: Vec<_> = self.streams.into_iter().collect();
        streams.sort_unstable();
        group.threads = threads;
        group.streams = streams;
        group.addresses = self.addresses;
        group
    }
}

/// A group with what all its records have in common, and when the first and the last of them were
/// made.
pub(super) fn to_group(common: Common, born: (Duration, Duration), now: Duration) -> Group {
    let place = call_site::get(common.place);
    let type_name = place.map_or("", |place| place.type_name);
    let mut group = Group::new(Kind::ALL[usize::from(common.kind)], type_name, 0, 0);
    group.label = caller::join(names::text(common.scope), names::text(common.name));
    group.origin = origin(common.place);
    group.kept = common.kept;
    group.oldest = now.saturating_sub(born.0);
    group.youngest = now.saturating_sub(born.1);
    group
}

pub(super) fn origin(id: PlaceId) -> Origin {
    call_site::get(id).map_or_else(Origin::default, |place| Origin {
        site: place.site.map(Into::into),
        stack: &place.stack,
    })
}

/// Puts groups together that differ only in where the compiler keeps a name or a line, or in how a
/// label came about; and sorts them.
fn merged(mut groups: Vec<Group>) -> Vec<Group> {
    // Equal groups lie side by side after this.
    groups
        .sort_unstable_by(|one, other| by_identity(one, other).then_with(|| by_stack(one, other)));
    groups.dedup_by(|more, group| {
        let same = by_identity(more, group).is_eq() && by_stack(more, group).is_eq();
        if same {
            group.amount += more.amount;
            group.threads.append(&mut more.threads);
            group.threads.sort_unstable();
            group.threads.dedup();
            group.streams.append(&mut more.streams);
            group.streams.sort_unstable();
            group.streams.dedup();
            group.oldest = group.oldest.max(more.oldest);
            group.youngest = group.youngest.min(more.youngest);
            group.addresses.append(&mut more.addresses);
            group.addresses.sort_unstable();
        }
        same
    });
    groups.sort_unstable_by(order);
    groups
}

/// The order of a snapshot. Stacks are addresses, which differ from run to run; where nothing else
/// tells two groups apart, the one that was made first comes first. The report, which knows names,
/// puts the names of the functions before that.
fn order(one: &Group, other: &Group) -> Ordering {
    larger_first(one, other)
        .then_with(|| by_identity(one, other))
        .then_with(|| other.oldest.cmp(&one.oldest))
}

/// Larger groups first, by bytes and then by count.
pub fn larger_first(one: &Group, other: &Group) -> Ordering {
    let size = |group: &Group| (group.amount.bytes, group.amount.count);
    size(other).cmp(&size(one))
}

/// By all that a person can read.
pub fn by_identity(one: &Group, other: &Group) -> Ordering {
    one.kind
        .cmp(&other.kind)
        .then_with(|| one.type_name.cmp(other.type_name))
        .then_with(|| one.label.cmp(&other.label))
        .then_with(|| one.origin.site.cmp(&other.origin.site))
        .then_with(|| one.kept.cmp(&other.kept))
}

fn by_stack(one: &Group, other: &Group) -> Ordering {
    one.origin.stack.cmp(other.origin.stack)
}

/// What the counters know of and no record tells.
fn unrecorded(totals: &[(Kind, Totals)], lists: &Lists) -> Vec<(Kind, Amount)> {
    let mut rest: Vec<_> = totals
        .iter()
        .map(|(kind, totals)| (*kind, totals.live()))
        .collect();
    let recorded = [&lists.owned, &lists.escaped, &lists.deferred];
    for group in recorded.into_iter().flatten() {
        if let Some((_, amount)) = rest.iter_mut().find(|(kind, _)| *kind == group.kind) {
            *amount -= group.amount;
        }
    }
    rest.retain(|(_, amount)| amount.count != 0);
    rest
}

/// Like failures together, the largest first.
pub(super) fn failed_frees(failed: &[FailedFree], now: Duration) -> Vec<FailedFreeGroup> {
    let mut piles: HashMap<_, Groups> = HashMap::new();
    for one in failed {
        let refusal = (one.freed, one.function, one.code, one.code_name);
        let record = one.record.without_flags();
        piles.entry(refusal).or_default().add(one.key, record);
    }
    let mut list = Vec::new();
    for ((freed, function, code, code_name), groups) in piles {
        for made in groups.into_groups(&Scales::default(), now).owned {
            list.push(FailedFreeGroup {
                allocated: made,
                freed: origin(freed),
                function: names::text(function).unwrap_or_default(),
                code,
                code_name: names::text(code_name).unwrap_or_default(),
            });
        }
    }
    list.sort_unstable_by(|one, other| {
        larger_first(&one.allocated, &other.allocated)
            .then_with(|| by_identity(&one.allocated, &other.allocated))
            .then_with(|| one.code.cmp(&other.code))
            .then_with(|| one.freed.site.cmp(&other.freed.site))
            .then_with(|| other.allocated.oldest.cmp(&one.allocated.oldest))
    });
    list
}
