//! What is held, for the moment in which memory runs out: places with how much they hold, whether
//! they grow, and the pages that small blocks keep. Less than a snapshot, and faster: no addresses
//! are kept, nothing is sorted but the places.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::panic::Location;
use std::time::Duration;

use super::collect::{Common, by_identity, larger_first, to_group};
use super::counters::Amount;
use super::kind::Kind;
use super::names::{BuildMix, NameId};
use super::pages::{PAGE, Pages, SmallPages};
use super::record::{Key, Record, nanoseconds};
use super::scale::{Scale, Scales};
use super::snapshot::Group;

/// How many places get a name. With so many places nobody looks at the smallest.
const NAMED: usize = 512;

/// Bytes by line, as they were at some earlier moment.
pub(super) type Baseline = HashMap<Line, u64, BuildMix>;

/// What was made in one line of the program, by whatever stack, is one holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Line {
    pub(super) kind: Kind,
    pub(super) site: Option<&'static Location<'static>>,
    pub(super) type_name: &'static str,
    pub(super) scope: NameId,
    pub(super) name: NameId,
}

/// What a context holds.
#[derive(Debug, Default)]
pub struct Holdings {
    /// By place, the largest first.
    pub places: Vec<KindUsage>,
    /// The pages of device memory. `None` where not every block has a record.
    pub pages: Option<Pages>,
    /// What was given away, by kind. It is in no other figure: whoever has it may have freed it.
    pub escaped: [Amount; Kind::COUNT],
    /// Whether a checkpoint was made, so that growth is known.
    pub has_baseline: bool,
}

/// What a context holds, without the places.
#[derive(Debug)]
pub struct Outline {
    /// As in [`Holdings`].
    pub pages: Option<Pages>,
    /// As in [`Holdings`].
    pub escaped: [Amount; Kind::COUNT],
}

/// What one place holds.
#[derive(Debug)]
pub struct KindUsage {
    /// Without threads, streams and addresses.
    pub group: Group,
    /// The bytes by which it grew since the checkpoint, if there was one.
    pub growth: Option<i64>,
    /// Its bytes by when they were made, in quarters of the context's life.
    pub quarters: [u64; 4],
    /// In how many pages it has small blocks.
    pub small_pages: u64,
}

/// What is being added up for one line.
struct Pile {
    amount: Amount,
    quarters: [u64; 4],
    /// When the first and the last of it were made, in nanoseconds.
    first: u64,
    last: u64,
    small_pages: u64,
}

/// A group of records: those of one line that were made by one stack.
struct Source {
    common: Common,
    pile: usize,
    bytes: u64,
}

/// Adds records up, one at a time.
pub(super) struct Adder {
    piles: Vec<(Line, Pile)>,
    sources: Vec<Source>,
    /// Where each line is among the piles, and each group among the sources.
    lines: HashMap<Line, usize, BuildMix>,
    groups: HashMap<Common, usize, BuildMix>,
    /// The source of the record before.
    last: Option<usize>,
    now: Duration,
    /// When the second, third and fourth quarter of the context's life began, in nanoseconds.
    quarters: [u64; 3],
    pages: Pages,
    escaped: [Amount; Kind::COUNT],
    small: SmallPages,
}

impl Adder {
    /// `start` is when the context was made.
    pub(super) fn new(start: Duration, now: Duration) -> Self {
        let begin = |quarter| start + now.saturating_sub(start) * quarter / 4;
        Self {
            piles: Vec::new(),
            sources: Vec::new(),
            lines: HashMap::default(),
            groups: HashMap::default(),
            last: None,
            now,
            quarters: [1, 2, 3].map(|quarter| nanoseconds(begin(quarter))),
            pages: Pages::default(),
            escaped: Default::default(),
            small: SmallPages::default(),
        }
    }

    fn quarter(&self, born: u64) -> usize {
        let begun = self.quarters.iter().filter(|begin| **begin < born);
        begun.count()
    }

    /// Which source a group is. Most records follow one of their own group.
    #[inline]
    fn source_of(&mut self, common: Common, born: u64) -> usize {
        if let Some(last) = self.last
            && self.sources[last].common == common
        {
            return last;
        }
        self.other_source_of(common, born)
    }

    #[inline(never)]
    fn other_source_of(&mut self, common: Common, born: u64) -> usize {
        let next = self.sources.len();
        let index = *self.groups.entry(common).or_insert(next);
        if index == next {
            let pile = self.pile_of(common.line(), born);
            self.sources.push(Source {
                common,
                pile,
                bytes: 0,
            });
        }
        self.last = Some(index);
        index
    }

    fn pile_of(&mut self, line: Line, born: u64) -> usize {
        let next = self.piles.len();
        let index = *self.lines.entry(line).or_insert(next);
        if index == next {
            let pile = Pile {
                amount: Amount::default(),
                quarters: [0; 4],
                first: born,
                last: born,
                small_pages: 0,
            };
            self.piles.push((line, pile));
        }
        index
    }

    /// This is done for every record there is. By reference, and as a part of the loop: to copy them
    /// took a good part of the time.
    #[inline]
    pub(super) fn add(&mut self, key: &Key, record: &Record) {
        let (bytes, born) = (record.bytes(), record.born_nanoseconds());
        if record.is_escaped() {
            self.escaped[key.kind.index()] += Amount::new(1, bytes);
            return;
        }
        let quarter = self.quarter(born);
        let common = Common::of(key, record);
        let source = self.source_of(common, born);
        let source = &mut self.sources[source];
        source.bytes += bytes;
        let index = source.pile;
        let pile = &mut self.piles[index].1;
        pile.amount += Amount::new(1, bytes);
        pile.quarters[quarter] += bytes;
        pile.first = pile.first.min(born);
        pile.last = pile.last.max(born);
        if key.kind != Kind::Device {
            return;
        }
        if bytes >= PAGE {
            self.pages.large_bytes += bytes;
            self.pages.large_pages += bytes.div_ceil(PAGE);
        } else {
            self.pages.small_bytes += bytes;
            // A small block may lie across the end of a page.
            let last = (key.address + bytes.max(1) - 1) / PAGE;
            for page in key.address / PAGE..=last {
                self.meet(page, index);
            }
        }
    }

    /// A pile has a small block in a page. A page with blocks of several piles counts for each.
    #[inline]
    fn meet(&mut self, page: u64, pile: usize) {
        let (is_first, is_new) = self.small.meet(page, pile);
        self.pages.small_pages += u64::from(is_first);
        self.piles[pile].1.small_pages += u64::from(is_new);
    }

    pub(super) fn outline(self, complete: bool) -> Outline {
        Outline {
            pages: complete.then_some(self.pages),
            escaped: self.escaped,
        }
    }

    /// Bytes by line.
    pub(super) fn into_baseline(self) -> Baseline {
        let bytes = |(line, pile): (Line, Pile)| (line, pile.amount.bytes);
        self.piles.into_iter().map(bytes).collect()
    }

    /// What the samples of each kind stand for, of which so much is alive in all.
    fn scales(&self, live: impl Fn(Kind) -> Amount) -> Scales {
        let mut scales = Scales::default();
        for kind in Kind::ALL.iter().copied() {
            scales[kind.index()] = Scale {
                all: live(kind),
                met: Amount::default(),
            };
            // What was given away stands for itself.
            scales[kind.index()].all -= self.escaped[kind.index()];
        }
        for (line, pile) in &self.piles {
            let scale = &mut scales[line.kind.index()];
            match line.is_known() {
                true => scale.met += pile.amount,
                false => scale.all -= pile.amount,
            }
        }
        scales
    }

    /// The result. `sampled` tells what is alive of a kind, where only samples are recorded; `complete`
    /// says that every block of device memory has a record.
    pub(super) fn finish(
        self,
        baseline: Option<&Baseline>,
        sampled: Option<&dyn Fn(Kind) -> Amount>,
        complete: bool,
    ) -> Holdings {
        let scales = match sampled {
            Some(live) => self.scales(live),
            None => Scales::default(),
        };
        // The stack that made most of a line stands for it.
        let mut made_by: Vec<Option<&Source>> = vec![None; self.piles.len()];
        for source in &self.sources {
            let largest = &mut made_by[source.pile];
            if largest.is_none_or(|largest| largest.bytes < source.bytes) {
                *largest = Some(source);
            }
        }
        let mut piles: Vec<_> = self.piles.iter().zip(made_by).collect();
        // To name a place takes much longer than to add it up.
        if piles.len() > NAMED {
            piles.select_nth_unstable_by_key(NAMED, |((_, pile), _)| Reverse(pile.amount.bytes));
            let rest = piles.split_off(NAMED);
            piles.extend(
                rest.into_iter()
                    .max_by_key(|((_, pile), _)| pile.small_pages),
            );
        }
        let mut places: Vec<KindUsage> = Vec::with_capacity(piles.len());
        for ((line, pile), source) in piles {
            let Some(source) = source else { continue };
            // What was recorded for another reason than that a sample met it stands for itself.
            let scale = match line.is_known() {
                true => scales[line.kind.index()],
                false => Scale::default(),
            };
            let born = (pile.first, pile.last);
            let born = (Duration::from_nanos(born.0), Duration::from_nanos(born.1));
            let mut group = to_group(source.common, born, self.now);
            group.amount = scale.of(pile.amount);
            let growth = baseline.map(|before| {
                let before = before.get(line).copied().unwrap_or(0);
                let (now, before) = (scale.of_bytes(pile.amount.bytes), scale.of_bytes(before));
                (now as i64).saturating_sub(before as i64)
            });
            places.push(KindUsage {
                group,
                growth,
                quarters: pile.quarters.map(|bytes| scale.of_bytes(bytes)),
                small_pages: pile.small_pages,
            });
        }
        let mut places = by_name(places);
        // Lines of one name may have counted a page more than once.
        for place in &mut places {
            place.small_pages = place.small_pages.min(self.pages.small_pages);
        }
        Holdings {
            places,
            pages: complete.then_some(self.pages),
            escaped: self.escaped,
            has_baseline: baseline.is_some(),
        }
    }
}

impl Line {
    /// Whether the place is known. Else it was recorded for another reason than that a sample met it.
    fn is_known(&self) -> bool {
        self.site.is_some() || !self.type_name.is_empty()
    }
}

/// Puts together what a person reads alike, as where a label came about in another way, and sorts. The
/// stack of the largest stays.
fn by_name(mut places: Vec<KindUsage>) -> Vec<KindUsage> {
    places.sort_unstable_by(|one, other| {
        by_identity(&one.group, &other.group)
            .then_with(|| larger_first(&one.group, &other.group))
            .then_with(|| other.group.oldest.cmp(&one.group.oldest))
    });
    places.dedup_by(|more, place| {
        let same = by_identity(&more.group, &place.group).is_eq();
        if same {
            place.group.amount += more.group.amount;
            place.group.oldest = place.group.oldest.max(more.group.oldest);
            place.group.youngest = place.group.youngest.min(more.group.youngest);
            place.growth = place.growth.zip(more.growth).map(|(one, two)| one + two);
            place.small_pages += more.small_pages;
            for (sum, bytes) in place.quarters.iter_mut().zip(more.quarters) {
                *sum += bytes;
            }
        }
        same
    });
    // Stable, so that equal ones stay in the order of their names.
    places.sort_by_key(|place| Reverse((place.group.amount.bytes, place.group.amount.count)));
    places
}

#[cfg(test)]
mod tests {
    use super::PAGE;
    use crate::{Entry, Key, Kind, Level, Registry};

    #[track_caller]
    fn insert(registry: &Registry, address: u64, bytes: u64) {
        let key = Key {
            kind: Kind::Device,
            lane: 0,
            address,
        };
        registry.insert(
            key,
            Entry {
                bytes,
                type_name: "u8",
                stream: 0,
            },
        );
    }

    #[test]
    fn pages_are_counted_once_and_for_each_place_that_has_blocks_in_them() {
        for base in [0, 1 << 46] {
            let registry = Registry::new(Level::Sites, 8);
            for page in 1..=10 {
                insert(&registry, page * PAGE, 1 << 20);
            }
            // Another place, in pages 10 and 11; and far away.
            insert(&registry, 10 * PAGE + (1 << 20), 1 << 20);
            insert(&registry, base + 11 * PAGE, 512);
            insert(&registry, 20 * PAGE, 3 << 20);
            let held = registry.holdings();
            let pages = held.pages.unwrap();
            assert_eq!(
                (pages.small_pages, pages.small_bytes),
                (11, (11 << 20) + 512)
            );
            assert_eq!((pages.large_pages, pages.large_bytes), (2, 3 << 20));
            let rows: Vec<_> = held
                .places
                .iter()
                .map(|held| (held.group.amount.bytes, held.small_pages))
                .collect();
            assert_eq!(rows, [(10 << 20, 10), (3 << 20, 0), (1 << 20, 1), (512, 1)]);
        }
    }

    #[test]
    fn growth_is_told_from_the_checkpoint_on() {
        let registry = Registry::new(Level::Sites, 8);
        let make = |address| insert(&registry, address, 100);
        make(1 << 20);
        assert_eq!(registry.holdings().places[0].growth, None);
        registry.mark();
        make(2 << 20);
        make(3 << 20);
        let held = registry.holdings();
        assert!(held.has_baseline);
        assert_eq!(held.places.len(), 1);
        assert_eq!(held.places[0].growth, Some(200));
        assert_eq!(held.places[0].quarters.iter().sum::<u64>(), 300);
    }

    /// What one line holds is told by line, also where stacks are recorded.
    #[test]
    fn a_line_that_is_reached_another_way_does_not_grow() {
        #[inline(never)]
        fn one_way(make: &dyn Fn(u64), address: u64) {
            make(address);
            std::hint::black_box(());
        }
        #[inline(never)]
        fn another_way(make: &dyn Fn(u64), address: u64) {
            make(address);
            std::hint::black_box(());
        }
        let registry = Registry::new(Level::Stacks, 32);
        let make = |address| insert(&registry, address, 100);
        one_way(&make, 1 << 20);
        registry.mark();
        let first = Key {
            kind: Kind::Device,
            lane: 0,
            address: 1 << 20,
        };
        registry.remove(first, 100);
        another_way(&make, 2 << 20);
        another_way(&make, 3 << 20);
        one_way(&make, 4 << 20);
        let held = registry.holdings();
        assert_eq!(held.places.len(), 1);
        assert_eq!(held.places[0].growth, Some(200));
        assert_eq!(held.places[0].group.amount.bytes, 300);
        assert_eq!(held.places[0].small_pages, 2);
    }

    /// However many places there are.
    #[test]
    fn pages_are_counted_for_every_place() {
        let registry = Registry::new(Level::Sites, 8);
        for place in 0..200_u64 {
            let _label = crate::in_label(&format!("place {place}"));
            for page in 0..5 {
                for block in 0..2 {
                    // All of them in the same five pages.
                    insert(&registry, page * PAGE + (2 * place + block) * 512, 512);
                }
            }
        }
        let held = registry.holdings();
        assert_eq!(held.pages.unwrap().small_pages, 5);
        assert_eq!(held.places.len(), 200);
        assert!(held.places.iter().all(|place| place.small_pages == 5));
    }

    /// Samples stand for what there is, and not for as many as were passed over on average.
    #[test]
    fn samples_come_to_what_there_is() {
        let registry = Registry::new(Level::Sites, 8).sampling(100).seeded(1);
        for address in 0..1000 {
            insert(&registry, address << 20, 1000);
        }
        let bytes = |held: &super::Holdings| -> u64 {
            held.places
                .iter()
                .map(|place| place.group.amount.bytes)
                .sum()
        };
        assert_eq!(bytes(&registry.holdings()), 1_000_000);
        // Large ones, until a sample meets one.
        let mut address = 1 << 40;
        while registry.holdings().places.len() == 1 {
            insert(&registry, address, 1 << 30);
            address += 1 << 30;
        }
        let live = registry.totals(Kind::Device).bytes;
        let told = bytes(&registry.holdings());
        assert!(told <= live && told + 2 >= live, "{told} of {live}");
    }

    #[test]
    fn nothing_is_said_of_pages_where_blocks_have_no_record() {
        let registry = Registry::new(Level::Counts, 8);
        insert(&registry, 1, 100);
        let held = registry.holdings();
        assert!(held.places.is_empty() && held.pages.is_none());
    }
}
