//! From records to groups: what a snapshot is made of.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::caller;
use super::counters::{Amount, Totals};
use super::holdings::Line;
use super::kind::{Kind, Level};
use super::names::{self, BuildMix, NameId};
use super::place::{self, PlaceId};
use super::record::{FailedFree, Key, Record};
use super::scale::{Scale, Scales};
use super::snapshot::{About, FailedFreeGroup, Group, Origin, Snapshot};

/// What the records of a group have in common, in numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Common {
    kind: u8,
    escaped: bool,
    place: PlaceId,
    scope: NameId,
    name: NameId,
}

impl Common {
    pub(super) fn of(key: Key, record: Record) -> Self {
        Self {
            kind: key.kind.index() as u8,
            escaped: record.is_escaped(),
            place: record.place,
            scope: record.scope,
            name: record.name,
        }
    }

    /// Where it was made, whatever stack led there.
    pub(super) fn line(self) -> Line {
        let place = place::get(self.place);
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
            match common.escaped {
                // What was given away stands for itself.
                true => scale.all -= pile.met,
                false => scale.met += pile.met,
            }
        }
        scales
    }

    pub(super) fn add(&mut self, key: Key, record: Record) {
        let common = Common::of(key, record);
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

    /// Two lists: what did not escape and what did.
    fn into_groups(self, scales: &Scales, now: Duration) -> (Vec<Group>, Vec<Group>) {
        let mut lists = (Vec::new(), Vec::new());
        for (common, pile) in self.piles {
            let list = if common.escaped {
                &mut lists.1
            } else {
                &mut lists.0
            };
            let scale = match common.escaped {
                true => Scale::default(),
                false => scales[pile.kind.index()],
            };
            list.push(pile.into_group(common, scale, now));
        }
        (merged(lists.0), merged(lists.1))
    }

    pub(super) fn into_snapshot(
        self,
        about: About,
        how: How,
        totals: Vec<(Kind, Totals)>,
        failed: &[FailedFree],
    ) -> Snapshot {
        let now = caller::now();
        let scales = self.scales(how, &totals);
        let (leaks, escaped) = self.into_groups(&scales, now);
        Snapshot {
            about,
            level: how.level,
            sample: how.sample,
            taken_at: now,
            unrecorded: unrecorded(&totals, &leaks, &escaped),
            totals: totals
                .into_iter()
                .filter(|(_, totals)| totals.made != 0)
                .collect(),
            leaks,
            escaped,
            failed_frees: failed_frees(failed, now),
            late_drops: Vec::new(),
            broken: None,
            not_released: None,
        }
    }
}

impl Pile {
    fn into_group(mut self, common: Common, scale: Scale, now: Duration) -> Group {
        let mut group = to_group(common, (self.first_born, self.last_born), now);
        group.amount = self.exact;
        group.amount += scale.of(self.met);
        self.addresses.sort_unstable();
        let mut threads: Vec<_> = self.threads.into_iter().filter_map(names::text).collect();
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
    let place = place::get(common.place);
    let type_name = place.map_or("", |place| place.type_name);
    let mut group = Group::new(Kind::ALL[usize::from(common.kind)], type_name, 0, 0);
    group.label = caller::join(names::text(common.scope), names::text(common.name));
    group.origin = origin(common.place);
    group.oldest = now.saturating_sub(born.0);
    group.youngest = now.saturating_sub(born.1);
    group
}

fn origin(id: PlaceId) -> Origin {
    place::get(id).map_or_else(Origin::default, |place| Origin {
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
pub(crate) fn larger_first(one: &Group, other: &Group) -> Ordering {
    let size = |group: &Group| (group.amount.bytes, group.amount.count);
    size(other).cmp(&size(one))
}

/// By all that a person can read.
pub(crate) fn by_identity(one: &Group, other: &Group) -> Ordering {
    one.kind
        .cmp(&other.kind)
        .then_with(|| one.type_name.cmp(other.type_name))
        .then_with(|| one.label.cmp(&other.label))
        .then_with(|| one.origin.site.cmp(&other.origin.site))
}

fn by_stack(one: &Group, other: &Group) -> Ordering {
    one.origin.stack.cmp(other.origin.stack)
}

/// What the counters know of and no record tells.
fn unrecorded(
    totals: &[(Kind, Totals)],
    leaks: &[Group],
    escaped: &[Group],
) -> Vec<(Kind, Amount)> {
    let mut rest: Vec<_> = totals
        .iter()
        .map(|(kind, totals)| (*kind, totals.live()))
        .collect();
    for group in leaks.iter().chain(escaped) {
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
        let mut record = one.record;
        record.set_escaped(false);
        piles.entry(refusal).or_default().add(one.key, record);
    }
    let mut list = Vec::new();
    for ((freed, function, code, code_name), groups) in piles {
        for made in groups.into_groups(&Scales::default(), now).0 {
            list.push(FailedFreeGroup {
                made,
                freed: origin(freed),
                function: names::text(function).unwrap_or_default(),
                code,
                code_name: names::text(code_name).unwrap_or_default(),
            });
        }
    }
    list.sort_unstable_by(|one, other| {
        larger_first(&one.made, &other.made)
            .then_with(|| by_identity(&one.made, &other.made))
            .then_with(|| one.code.cmp(&other.code))
            .then_with(|| one.freed.site.cmp(&other.freed.site))
            .then_with(|| other.made.oldest.cmp(&one.made.oldest))
    });
    list
}

#[cfg(test)]
mod tests {
    use std::thread;

    use crate::registry::{
        About, Amount, Entry, FailedFree, Key, Kind, Level, Registry, Snapshot, in_label,
    };

    fn key(kind: Kind, address: u64) -> Key {
        Key {
            kind,
            lane: 0,
            address,
        }
    }

    fn entry(bytes: u64, type_name: &'static str) -> Entry {
        Entry {
            bytes,
            type_name,
            stream: 0,
        }
    }

    fn snapshot(registry: &Registry) -> Snapshot {
        registry.snapshot(About::default())
    }

    #[test]
    fn an_empty_registry_gives_an_empty_snapshot() {
        let snapshot = snapshot(&Registry::new(Level::Sites, 8));
        assert!(snapshot.is_clean() && snapshot.totals.is_empty());
    }

    #[test]
    fn like_things_are_one_group_and_the_largest_comes_first() {
        let registry = Registry::new(Level::Sites, 8);
        for address in 1..=3 {
            registry.insert(key(Kind::Device, address), entry(10, "f32"));
        }
        registry.insert(key(Kind::Device, 4), entry(100, "f64"));
        registry.insert(key(Kind::Stream, 5), entry(0, ""));
        let snapshot = snapshot(&registry);
        let rows: Vec<_> = snapshot
            .leaks
            .iter()
            .map(|g| (g.type_name, g.amount.count, g.amount.bytes))
            .collect();
        assert_eq!(rows, [("f64", 1, 100), ("f32", 3, 30), ("", 1, 0)]);
        assert_eq!(snapshot.leaks[1].addresses, [1, 2, 3]);
        assert!(snapshot.leaks[1].oldest >= snapshot.leaks[1].youngest);
        assert_eq!(snapshot.leaked(), Amount::new(5, 130));
        assert!(snapshot.unrecorded.is_empty());
        assert_eq!(snapshot.totals.len(), 2);
    }

    #[test]
    fn labels_keep_groups_apart_however_they_came_about() {
        let registry = Registry::new(Level::Sites, 8);
        let insert = |address| registry.insert(key(Kind::Device, address), entry(1, "u8"));
        {
            let _scope = in_label("model");
            insert(1);
            insert(2);
        }
        registry.label(key(Kind::Device, 2), "ignored");
        registry.label(key(Kind::Device, 2), "bias");
        insert(3);
        registry.label(key(Kind::Device, 3), "model/bias");
        insert(4);
        let snapshot = snapshot(&registry);
        let labels: Vec<_> = snapshot
            .leaks
            .iter()
            .map(|g| (g.label.as_deref(), g.amount.count))
            .collect();
        assert_eq!(
            labels,
            [(Some("model/bias"), 2), (None, 1), (Some("model"), 1)]
        );
    }

    #[test]
    fn threads_are_named_once_and_sorted() {
        let registry = Registry::new(Level::Sites, 8);
        let insert = |address| registry.insert(key(Kind::Device, address), entry(1, "u8"));
        let insert = &insert;
        thread::scope(|scope| {
            for (address, name) in (1..).zip(["b", "a", "b"]) {
                let builder = thread::Builder::new().name(name.into());
                builder
                    .spawn_scoped(scope, move || insert(address))
                    .unwrap();
            }
        });
        let snapshot = snapshot(&registry);
        assert_eq!(snapshot.leaks.len(), 1);
        assert_eq!(snapshot.leaks[0].threads, ["a", "b"]);
    }

    #[test]
    fn stacks_keep_groups_apart() {
        let registry = Registry::new(Level::Stacks, 32);
        #[inline(never)]
        fn make(registry: &Registry, address: u64) {
            registry.insert(key(Kind::Device, address), entry(1, "u8"));
            std::hint::black_box(());
        }
        for address in 1..=2 {
            make(&registry, address);
        }
        make(&registry, 3);
        let snapshot = snapshot(&registry);
        let counts: Vec<_> = snapshot
            .leaks
            .iter()
            .map(|group| group.amount.count)
            .collect();
        assert_eq!(counts, [2, 1]);
        assert_eq!(snapshot.leaks[0].origin.site, snapshot.leaks[1].origin.site);
        assert_ne!(
            snapshot.leaks[0].origin.stack,
            snapshot.leaks[1].origin.stack
        );
    }

    #[test]
    fn what_escaped_is_told_apart_and_is_no_leak() {
        let registry = Registry::new(Level::Counts, 8);
        registry.insert(key(Kind::Device, 1), entry(10, "u8"));
        registry.escape(key(Kind::Device, 1), 10);
        let before = snapshot(&registry);
        assert!(before.is_clean());
        assert_eq!(before.escaped[0].amount, Amount::new(1, 10));
        registry.insert(key(Kind::Device, 2), entry(5, "u8"));
        let after = snapshot(&registry);
        assert_eq!(after.unrecorded, [(Kind::Device, Amount::new(1, 5))]);
        assert!(!after.is_clean());
        assert_eq!(after.leaked(), Amount::new(1, 5));
    }

    #[test]
    fn failed_frees_and_late_drops_are_kept() {
        let registry = Registry::new(Level::Sites, 8);
        for address in 1..=3 {
            let key = key(Kind::Device, address);
            registry.insert(key, entry(10, "u8"));
            let record = registry.remove(key, 10);
            let (code, name) = if address == 3 {
                (1, "INVALID_VALUE")
            } else {
                (700, "ILLEGAL_ADDRESS")
            };
            let failed = FailedFree::new(key, 10, record, "cuMemFree", code, name);
            registry.file_failed_free(failed);
        }
        registry.count_late_drop(Kind::Event, 0);
        registry.count_late_drop(Kind::Device, 7);
        registry.count_late_drop(Kind::Device, 8);
        let snapshot = snapshot(&registry);
        assert!(snapshot.leaks.is_empty() && !snapshot.is_clean());
        let failed: Vec<_> = snapshot
            .failed_frees
            .iter()
            .map(|f| (f.code, f.code_name, f.function, f.made.amount.count))
            .collect();
        assert_eq!(
            failed,
            [
                (700, "ILLEGAL_ADDRESS", "cuMemFree", 2),
                (1, "INVALID_VALUE", "cuMemFree", 1)
            ]
        );
        assert_eq!(snapshot.failed_frees[0].made.addresses, [1, 2]);
        assert!(!snapshot.failed_frees[0].freed.stack.is_empty());
        let late: Vec<_> = snapshot
            .late_drops
            .iter()
            .map(|l| (l.kind, l.amount.bytes))
            .collect();
        assert_eq!(late, [(Kind::Device, 15), (Kind::Event, 0)]);
    }
}
