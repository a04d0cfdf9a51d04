//! Which blocks of the heap the program can reach, and by which way.
//!
//! ```text
//!   globals, thread-local variables ─► blocks ─► blocks ─► …      breadth first, each block by its best place
//!   mappings                        ─► the other blocks ─► …
//!   stacks                          ─► …
//!   registers                       ─► …
//! ```
//!
//! As in LeakSanitizer, and a garbage collector: what is only in blocks that nothing leads to is lost with them. All memory that is
//! not known to be a block counts as reachable, among it that of other allocators and of the driver, which keeps addresses of the
//! program for callbacks.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use super::blocks::Blocks;
use super::memory::{Memory, bytes_of};
use super::python::Python;
use super::rank::{Rank, Spot};
use super::read::{Part, Reader};

/// The ranks of roots in the order in which they are followed.
const ROOTS: [&[Rank]; 4] = [
    &[Rank::Global, Rank::ThreadLocal],
    &[Rank::Heap, Rank::Mapping],
    &[Rank::Stack],
    &[Rank::Register],
];

/// How much is read at once of blocks that are near each other.
const WINDOW: u64 = 64 << 10;

/// Which blocks are reachable.
pub(super) struct Reach<'a> {
    memory: &'a Memory,
    blocks: &'a Blocks,
    python: Option<&'a Python>,
    /// Where modules have the tables of virtual functions.
    tables: Vec<Range<u64>>,
    /// By block: the place that leads to it; [`Spot::NONE`] where none does. Of several roots the best, of several places the nearest
    /// to that, and of these the best.
    by: Vec<AtomicU64>,
}

/// A block on the way to an address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Step {
    /// What the program may use of it.
    pub(super) bytes: u64,
    /// Its first word, if that may be the address of a table of virtual functions: then it is an object of C++.
    pub(super) table: u64,
}

/// How the program gets to a block.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Way {
    /// Where it begins.
    pub(super) root: Spot,
    /// The blocks in between, the last one is the block itself. Of equal ones in a row one: the nodes of a list. No more than
    /// [`STEPS`], the first and the last.
    pub(super) steps: Vec<Step>,
    /// Whether steps were left out behind the first.
    pub(super) is_longer: bool,
}

/// How many steps of a way are kept.
const STEPS: usize = 3;

impl Way {
    fn add(&mut self, step: Step) {
        if self.steps.last() == Some(&step) {
            return;
        }
        if self.steps.len() == STEPS {
            self.steps.remove(1);
            self.is_longer = true;
        }
        self.steps.push(step);
    }
}

impl<'a> Reach<'a> {
    pub(super) fn new(
        memory: &'a Memory,
        blocks: &'a Blocks,
        python: Option<&'a Python>,
        tables: Vec<Range<u64>>,
    ) -> Self {
        let by = (0..blocks.len()).map(|_| AtomicU64::new(Spot::NONE));
        Self {
            memory,
            blocks,
            python,
            tables,
            by: by.collect(),
        }
    }

    /// A value at a place that the program can reach.
    pub(super) fn root(&self, value: u64, spot: Spot) {
        self.blocks
            .led_to(value, |block| self.is_led_to(block, spot));
    }

    fn is_led_to(&self, block: u32, spot: Spot) {
        self.by[block as usize].fetch_min(spot.word(), Ordering::Relaxed);
    }

    /// The values in a part of memory that the program can reach. `exact`: in variables of the C library, which point into blocks and
    /// never in front of them or behind. (`tzname` has the last word of a block, which is in the header of the next.)
    pub(super) fn roots(&self, reader: &Reader<'_>, part: &Part, rank: Rank, exact: bool) {
        // The first test of a word.
        let Some((low, span)) = self.bounds() else {
            return;
        };
        reader.read(part, &mut |start, words| {
            for (index, word) in words.iter().enumerate() {
                let spot = || Spot::new(rank, start + 8 * index as u64);
                if word.wrapping_sub(low) < span {
                    match exact {
                        true => {
                            let block = self.blocks.inside(*word);
                            block.into_iter().for_each(|it| self.is_led_to(it, spot()));
                        }
                        false => self.root(*word, spot()),
                    }
                } else if let Some(python) = self.python
                    && let Some(value) = Python::digits(*word)
                    && value.wrapping_sub(low) < span
                    && python.is_integer(self.memory, spot().address())
                {
                    self.root(value, spot());
                }
            }
        });
    }

    /// The lowest address of all heaps, and the distance to the end.
    fn bounds(&self) -> Option<(u64, u64)> {
        let low = self.blocks.heaps().map(|heap| heap.start).min()?;
        let high = self.blocks.heaps().map(|heap| heap.end).max()?;
        Some((low, high - low))
    }

    /// Follows the blocks that roots lead to. False if the time was over before.
    pub(super) fn follow(&mut self, reader: &Reader<'_>) -> bool {
        let Some((low, span)) = self.bounds() else {
            return true;
        };
        let by_rank = |by: &AtomicU64, ranks: &[Rank]| {
            let spot = Spot::from_word(by.load(Ordering::Relaxed));
            spot.is_some_and(|spot| ranks.contains(&spot.rank()))
        };
        let mut done = vec![false; self.by.len()];
        for ranks in ROOTS {
            let blocks = self.by.iter().zip(&done).enumerate();
            let of_rank = blocks.filter(|(_, (by, done))| !**done && by_rank(by, ranks));
            let level = of_rank.map(|(block, _)| block as u32).collect();
            if !self.follow_from(reader, (low, span), level, &mut done) {
                return false;
            }
        }
        true
    }

    /// Follows the blocks that lead on from these.
    fn follow_from(
        &mut self,
        reader: &Reader<'_>,
        (low, span): (u64, u64),
        mut level: Vec<u32>,
        done: &mut [bool],
    ) -> bool {
        let (memory, blocks) = (self.memory, self.blocks);
        let mut words = vec![0; (WINDOW / 8) as usize];
        let mut is_next = HashSet::new();
        while !level.is_empty() {
            for block in &level {
                done[*block as usize] = true;
            }
            is_next.clear();
            let mut at = 0;
            while at < level.len() {
                if reader.is_over() {
                    return false;
                }
                // As many as one window has.
                let first = blocks.addresses(level[at]);
                let end = first.start + WINDOW;
                let mut behind = at + 1;
                while behind < level.len() && blocks.addresses(level[behind]).end <= end {
                    behind += 1;
                }
                for window in windows(first.start..blocks.addresses(level[behind - 1]).end) {
                    let length = (window.end - window.start) as usize;
                    let read = memory.read(window.start, &mut bytes_of(&mut words)[..length]);
                    let of_level = level[at..behind].iter();
                    for addresses in of_level.map(|block| blocks.addresses(*block)) {
                        let from = addresses.start.max(window.start) - window.start;
                        let to = addresses.end.min(window.start + read as u64);
                        let to = to.saturating_sub(window.start);
                        let words = words.get((from / 8) as usize..(to / 8) as usize);
                        for (index, word) in words.into_iter().flatten().enumerate() {
                            if word.wrapping_sub(low) >= span {
                                continue;
                            }
                            let address = window.start + from + 8 * index as u64;
                            let spot = Spot::new(Rank::Heap, address);
                            blocks.led_to(*word, |block| {
                                if !done[block as usize] {
                                    let by = self.by[block as usize].get_mut();
                                    let is_first = is_next.insert(block);
                                    let before = if is_first { Spot::NONE } else { *by };
                                    *by = spot.word().min(before);
                                }
                            });
                        }
                    }
                }
                at = behind;
            }
            level = is_next.iter().copied().collect();
            level.sort_unstable();
        }
        true
    }

    /// The block that the word at an address lies in, and whether the program can reach it.
    pub(super) fn block_at(&self, address: u64) -> Option<(u32, bool)> {
        let block = self.blocks.containing(address)?;
        let by = self.by[block as usize].load(Ordering::Relaxed);
        Some((block, by != Spot::NONE))
    }

    /// What is known of a block by itself.
    pub(super) fn step(&self, block: u32) -> Step {
        let addresses = self.blocks.addresses(block);
        let first = self.memory.words::<1>(addresses.start);
        let is_table = |word: &u64| self.tables.iter().any(|table| table.contains(word));
        let table = first.map(|[word]| word).filter(is_table);
        Step {
            bytes: addresses.end - addresses.start,
            table: table.unwrap_or(0),
        }
    }
}

/// The ways to blocks, each computed once.
pub(super) struct Ways<'a> {
    reach: &'a Reach<'a>,
    pub(super) list: Vec<Way>,
    /// Of each block the index of its way.
    known: HashMap<u32, usize>,
    /// The indices of ways without steps, by root, and of those with one step more.
    roots: HashMap<Spot, usize>,
    longer: HashMap<(usize, Step), usize>,
}

impl<'a> Ways<'a> {
    pub(super) fn new(reach: &'a Reach<'a>) -> Self {
        Self {
            reach,
            list: Vec::new(),
            known: HashMap::new(),
            roots: HashMap::new(),
            longer: HashMap::new(),
        }
    }

    /// The index of the way to a block that is reachable.
    pub(super) fn to(&mut self, block: u32) -> usize {
        // Back to a root, or to a block whose way is known; a list may have millions.
        let (mut blocks, mut at) = (Vec::new(), block);
        let mut way = loop {
            if let Some(known) = self.known.get(&at) {
                break *known;
            }
            blocks.push(at);
            let by = self.reach.by[at as usize].load(Ordering::Relaxed);
            let spot = Spot::from_word(by).unwrap_or(Spot::new(Rank::Heap, 0));
            match self.reach.block_at(spot.address()) {
                Some((before, _)) if spot.rank() == Rank::Heap => at = before,
                _ => break self.root(spot),
            }
        };
        for block in blocks.into_iter().rev() {
            way = self.longer(way, self.reach.step(block));
            self.known.insert(block, way);
        }
        way
    }

    fn root(&mut self, root: Spot) -> usize {
        *self.roots.entry(root).or_insert_with(|| {
            self.list.push(Way {
                root,
                steps: Vec::new(),
                is_longer: false,
            });
            self.list.len() - 1
        })
    }

    fn longer(&mut self, way: usize, step: Step) -> usize {
        *self.longer.entry((way, step)).or_insert_with(|| {
            let mut longer = self.list[way].clone();
            longer.add(step);
            if longer == self.list[way] {
                return way;
            }
            self.list.push(longer);
            self.list.len() - 1
        })
    }
}

/// Addresses in windows.
fn windows(addresses: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let Range { start, end } = addresses;
    let starts = (start..end).step_by(WINDOW as usize);
    starts.map(move |start| start..(start + WINDOW).min(end))
}
