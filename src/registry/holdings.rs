//! What is held, for the moment in which memory runs out: places with how much they hold, whether
//! they grow, and the pages that small blocks keep. Less than a snapshot, and faster: no addresses
//! are kept, nothing is sorted but the places.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use super::collect::{Common, by_identity, larger_first, to_group};
use super::counters::Amount;
use super::kind::Kind;
use super::names::BuildMix;
use super::record::{Key, Record, nanoseconds};
use super::snapshot::Group;

/// The driver gives device memory out in pages of this size. Blocks below it share pages, blocks
/// from it on have whole pages of their own.
pub(crate) const PAGE: u64 = 2 << 20;

/// How many places get a name. With so many places nobody looks at the smallest.
const NAMED: usize = 512;

/// Bytes by group, as they were at some earlier moment.
pub(super) type Baseline = HashMap<Common, u64, BuildMix>;

/// What a context holds.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    /// By place, the largest first.
    pub(crate) places: Vec<Held>,
    /// The pages of device memory. `None` where not every block has a record.
    pub(crate) pages: Option<Pages>,
    /// What was given away, by kind. It is in no other figure: whoever has it may have freed it.
    pub(crate) escaped: [Amount; Kind::COUNT],
    /// Whether a checkpoint was made, so that growth is known.
    pub(crate) has_baseline: bool,
}

/// What one place holds.
#[derive(Debug)]
pub(crate) struct Held {
    /// Without threads, streams and addresses.
    pub(crate) group: Group,
    /// The bytes by which it grew since the checkpoint, if there was one.
    pub(crate) growth: Option<i64>,
    /// Its bytes by when they were made, in quarters of the context's life.
    pub(crate) quarters: [u64; 4],
    /// In how many pages it has small blocks.
    pub(crate) small_pages: u64,
}

/// How device memory lies in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pages {
    /// The bytes of blocks that have pages of their own.
    pub(crate) large_bytes: u64,
    /// How many pages these have.
    pub(crate) large_pages: u64,
    /// The bytes of blocks that share pages.
    pub(crate) small_bytes: u64,
    /// How many pages these keep.
    pub(crate) small_pages: u64,
}

/// What is being added up for one group.
struct Pile {
    amount: Amount,
    quarters: [u64; 4],
    /// When the first and the last of it were made, in nanoseconds.
    first: u64,
    last: u64,
    small_pages: u64,
}

/// Adds records up, one at a time.
pub(super) struct Adder {
    piles: Vec<(Common, Pile)>,
    /// Where each group is among the piles.
    places: HashMap<Common, usize, BuildMix>,
    /// The pile of the record before.
    last: Option<usize>,
    now: Duration,
    /// When the second, third and fourth quarter of the context's life began, in nanoseconds.
    quarters: [u64; 3],
    pages: Pages,
    escaped: [Amount; Kind::COUNT],
    small: SmallPages,
}

/// Whose small blocks are in which page: a bit for each pile; those after the 63rd share the last.
#[derive(Default)]
struct SmallPages {
    runs: Vec<[u64; RUN]>,
    /// Which run the pages are in that have this number when divided by [`RUN`].
    places: HashMap<u64, usize, BuildMix>,
    /// The run of the block before.
    last: Option<(u64, usize)>,
}

/// So many pages, one after the other, are looked up at once: 1 GiB of addresses.
const RUN: usize = 512;

impl SmallPages {
    fn piles_in(&mut self, page: u64) -> &mut u64 {
        let (number, within) = (page / RUN as u64, page as usize % RUN);
        let run = match self.last {
            Some((last, run)) if last == number => run,
            _ => *self.places.entry(number).or_insert_with(|| {
                self.runs.push([0; RUN]);
                self.runs.len() - 1
            }),
        };
        self.last = Some((number, run));
        &mut self.runs[run][within]
    }
}

impl Adder {
    /// `start` is when the context was made.
    pub(super) fn new(start: Duration, now: Duration) -> Self {
        let begin = |quarter| start + now.saturating_sub(start) * quarter / 4;
        Self {
            piles: Vec::new(),
            places: HashMap::default(),
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

    /// Which pile a group is. Most records follow one of their own group.
    fn pile_of(&mut self, common: Common, born: u64) -> usize {
        if let Some(last) = self.last
            && self.piles[last].0 == common
        {
            return last;
        }
        let next = self.piles.len();
        let index = *self.places.entry(common).or_insert(next);
        if index == next {
            let pile = Pile {
                amount: Amount::default(),
                quarters: [0; 4],
                first: born,
                last: born,
                small_pages: 0,
            };
            self.piles.push((common, pile));
        }
        self.last = Some(index);
        index
    }

    pub(super) fn add(&mut self, key: Key, record: Record) {
        let (bytes, born) = (record.bytes(), record.born_nanoseconds());
        if record.is_escaped() {
            self.escaped[key.kind.index()] += Amount::new(1, bytes);
            return;
        }
        let quarter = self.quarter(born);
        let common = Common::of(key, record);
        let index = self.pile_of(common, born);
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
    fn meet(&mut self, page: u64, pile: usize) {
        let piles = self.small.piles_in(page);
        let bit = 1 << pile.min(63);
        if *piles & bit == 0 {
            self.piles[pile].1.small_pages += 1;
        }
        if *piles == 0 {
            self.pages.small_pages += 1;
        }
        *piles |= bit;
    }

    /// Bytes by group.
    pub(super) fn into_baseline(self) -> Baseline {
        let bytes = |(common, pile): (Common, Pile)| (common, pile.amount.bytes);
        self.piles.into_iter().map(bytes).collect()
    }

    /// The result. `scale` is how many things each record stands for; `complete` says that every
    /// block of device memory has a record.
    pub(super) fn finish(
        self,
        baseline: Option<&Baseline>,
        scale: u64,
        complete: bool,
    ) -> Holdings {
        let mut piles = self.piles;
        // To name a place takes much longer than to add it up.
        if piles.len() > NAMED {
            piles.select_nth_unstable_by_key(NAMED, |(_, pile)| Reverse(pile.amount.bytes));
            let rest = piles.split_off(NAMED);
            piles.extend(rest.into_iter().max_by_key(|(_, pile)| pile.small_pages));
        }
        let mut places: Vec<Held> = Vec::with_capacity(piles.len());
        for (common, pile) in piles {
            // What was recorded for another reason than that a sample met it stands for itself.
            let scale = if common.has_place() { scale } else { 1 };
            let times = |bytes: u64| bytes.saturating_mul(scale);
            let Amount { count, bytes, .. } = pile.amount;
            let born = (pile.first, pile.last);
            let born = (Duration::from_nanos(born.0), Duration::from_nanos(born.1));
            let mut group = to_group(common, born, self.now);
            group.amount = Amount::new(times(count), times(bytes));
            let growth = baseline.map(|before| {
                let before = before.get(&common).copied().unwrap_or(0);
                let growth = (bytes as i64).saturating_sub(before as i64);
                growth.saturating_mul(scale.min(u32::MAX.into()) as i64)
            });
            places.push(Held {
                group,
                growth,
                quarters: pile.quarters.map(times),
                small_pages: pile.small_pages,
            });
        }
        let mut places = by_line(places);
        // One line with several stacks may have counted a page more than once.
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

/// Puts together what was made in one line, by whatever stack, and sorts. The stack of the largest
/// stays.
fn by_line(mut places: Vec<Held>) -> Vec<Held> {
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
    use crate::registry::{Entry, Key, Kind, Level, Registry};

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

    #[test]
    fn nothing_is_said_of_pages_where_blocks_have_no_record() {
        let registry = Registry::new(Level::Counts, 8);
        insert(&registry, 1, 100);
        let held = registry.holdings();
        assert!(held.places.is_empty() && held.pages.is_none());
    }
}
