//! Compares each aligned word of memory with the targets.

use std::mem;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use super::memory::Memory;
use super::python::Python;
use super::rank::{Rank, Spot};
use super::read::{Part, Reader};
use super::targets::Targets;

/// Where the program holds an address that is found in a part of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Holder {
    /// There.
    Own(Rank),
    /// In managed memory. This is the best place of the block, so that all blocks of a list have the place of the first.
    Managed(Spot),
}

/// A part of memory, and what finding an address there means.
pub(super) struct Item {
    pub(super) part: Part,
    pub(super) holder: Holder,
}

/// Where a target was found.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Found {
    pub(super) spot: Spot,
    /// The address of managed memory was found there, which leads to the target.
    pub(super) by_managed: bool,
}

/// The bit of a place that leads to the target by managed memory. Others are better.
const BY_MANAGED: u64 = 1 << 63;

/// More places in the heap are not noted: what is found there is reachable then, whether or not the heap's block is.
const MOST_IN_HEAP: usize = 1 << 22;

/// The best places of a group of targets: the smallest value is the best.
struct Best {
    all: AtomicU64,
    /// Of those that do not depend on whether a block of the heap is reachable.
    beside_heap: AtomicU64,
}

impl Best {
    fn new() -> Best {
        Best {
            all: AtomicU64::new(Spot::NONE),
            beside_heap: AtomicU64::new(Spot::NONE),
        }
    }
}

fn found(place: u64) -> Option<Found> {
    let spot = Spot::from_word(place & !BY_MANAGED)?;
    Some(Found {
        spot,
        by_managed: place & BY_MANAGED != 0,
    })
}

/// A search in progress.
pub(super) struct Scan<'a> {
    pub(super) memory: &'a Memory,
    reader: &'a Reader<'a>,
    targets: &'a Targets,
    python: Option<&'a Python>,
    best: Vec<Best>,
    /// Groups of targets and where in the heap they were found; all of them, up to a limit.
    in_heap: Mutex<Vec<(u32, u64)>>,
    /// Groups of managed memory that were found and not searched yet.
    reached: Mutex<Vec<usize>>,
    /// Bytes that could not be read.
    pub(super) unread: AtomicU64,
    /// The same of managed memory.
    pub(super) unread_managed: AtomicU64,
}

impl<'a> Scan<'a> {
    pub(super) fn new(
        memory: &'a Memory,
        reader: &'a Reader<'a>,
        targets: &'a Targets,
        python: Option<&'a Python>,
    ) -> Scan<'a> {
        Scan {
            memory,
            reader,
            targets,
            python,
            best: (0..targets.group_count()).map(|_| Best::new()).collect(),
            in_heap: Mutex::new(Vec::new()),
            reached: Mutex::new(Vec::new()),
            unread: AtomicU64::new(0),
            unread_managed: AtomicU64::new(0),
        }
    }

    /// The best place of a group of targets.
    pub(super) fn best(&self, group: usize) -> Option<Found> {
        found(self.best[group].all.load(Ordering::Relaxed))
    }

    /// The best place that does not depend on whether a block of the heap is reachable.
    pub(super) fn beside_heap(&self, group: usize) -> Option<Found> {
        found(self.best[group].beside_heap.load(Ordering::Relaxed))
    }

    /// The places in the heap where groups of targets were found, in order. `None` where there are too many.
    pub(super) fn in_heap(&self) -> Option<Vec<(u32, u64)>> {
        let mut places = mem::take(&mut *self.in_heap.lock().ok()?);
        places.sort_unstable();
        (places.len() < MOST_IN_HEAP).then_some(places)
    }

    /// The managed memory that was found since the last call, and what holds the addresses in it.
    pub(super) fn reached(&self) -> Vec<(Range<u64>, Holder)> {
        let reached = self
            .reached
            .lock()
            .map(|mut reached| mem::take(&mut *reached));
        let addresses = |group| {
            let addresses = self.targets.managed().get(&group)?.clone();
            Some((addresses, Holder::Managed(self.best(group)?.spot)))
        };
        let reached = reached.unwrap_or_default().into_iter();
        reached.filter_map(addresses).collect()
    }

    /// Compares a value that is not in memory.
    pub(super) fn value(&self, value: u64, rank: Rank, address: u64) {
        let (low, span) = self.targets.bounds();
        if value.wrapping_sub(low) < span {
            self.candidate(value, Holder::Own(rank), address);
        }
    }

    #[cold]
    #[inline(never)]
    fn candidate(&self, value: u64, holder: Holder, address: u64) {
        let place = match holder {
            Holder::Own(rank) => Spot::new(rank, address).word(),
            Holder::Managed(spot) => spot.word() | BY_MANAGED,
        };
        let is_heap = holder == Holder::Own(Rank::Heap);
        let mut is_free = None;
        self.targets.find(value, |group| {
            let best = &self.best[group];
            let side = match is_heap {
                true => &best.all,
                false => &best.beside_heap,
            };
            // A place in the heap counts whether or not it is the best one, until there is one that does not depend on its block.
            let is_wanted = match is_heap {
                true => best.beside_heap.load(Ordering::Relaxed) > place,
                false => place < side.load(Ordering::Relaxed),
            };
            if !is_wanted || *is_free.get_or_insert_with(|| self.is_free_in_python(holder, address))
            {
                return;
            }
            if is_heap
                && let Ok(mut places) = self.in_heap.lock()
                && places.len() < MOST_IN_HEAP
            {
                places.push((group as u32, address));
            }
            side.fetch_min(place, Ordering::Relaxed);
            let before = best.all.fetch_min(place, Ordering::Relaxed);
            if before == Spot::NONE
                && self.targets.managed().contains_key(&group)
                && let Ok(mut reached) = self.reached.lock()
            {
                reached.push(group);
            }
        });
    }

    fn is_free_in_python(&self, holder: Holder, address: u64) -> bool {
        let is_heap = holder == Holder::Own(Rank::Heap);
        let python = self.python.filter(|_| is_heap);
        python.is_some_and(|python| python.is_free(self.memory, address))
    }

    /// Searches an item.
    pub(super) fn item(&self, item: &Item) {
        let unread = self.reader.read(&item.part, &mut |start, words| {
            self.words(item.holder, start, words);
        });
        match item.holder {
            Holder::Managed(_) => self.unread_managed.fetch_add(unread, Ordering::Relaxed),
            Holder::Own(_) if item.part.private || self.memory.is_refused() => {
                self.unread.fetch_add(unread, Ordering::Relaxed)
            }
            // The program cannot read shared memory either behind the end of its file.
            Holder::Own(_) => 0,
        };
    }

    /// Searches words that were read at `start`.
    fn words(&self, holder: Holder, start: u64, words: &[u64]) {
        let (low, span) = self.targets.bounds();
        // Eight at a time: nearly always none of them lies between the lowest and the highest target.
        let mut at = start;
        for block in words.chunks(8) {
            let mut any = false;
            for word in block {
                any |= word.wrapping_sub(low) < span;
            }
            if any {
                for (index, word) in block.iter().enumerate() {
                    if word.wrapping_sub(low) < span {
                        self.candidate(*word, holder, at + 8 * index as u64);
                    }
                }
            }
            at += 8 * block.len() as u64;
        }
        if let Some(python) = self.python {
            for (index, word) in words.iter().enumerate() {
                if let Some(value) = Python::digits(*word)
                    && value.wrapping_sub(low) < span
                {
                    let address = start + 8 * index as u64;
                    if python.is_integer(self.memory, address) {
                        self.candidate(value, holder, address);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::atomic::Ordering;
    use std::time::{Duration, Instant};

    use super::{Found, Holder, Item, Memory, Part, Rank, Reader, Scan, Spot, Targets};
    use crate::search::Target;

    /// The places that a scan of the words finds for targets of 16 bytes.
    fn scan(
        words: &[u64],
        targets: &[u64],
        holes: &[Range<usize>],
        time: Duration,
    ) -> (Vec<Option<u64>>, u64) {
        let targets: Vec<_> = targets
            .iter()
            .map(|start| Target {
                start: *start,
                len: 16,
                is_managed: false,
            })
            .collect();
        let start = words.as_ptr().addr() as u64;
        let holes: Vec<_> = holes
            .iter()
            .map(|hole| start + 8 * hole.start as u64..start + 8 * hole.end as u64)
            .collect();
        let (memory, arranged) = (Memory::open(), Targets::new(&targets));
        let item = Item {
            part: Part {
                addresses: start..start + 8 * words.len() as u64,
                private: true,
                holes: 0..holes.len(),
            },
            holder: Holder::Own(Rank::Heap),
        };
        let reader = Reader::new(&memory, &holes, Instant::now() + time);
        let scan = Scan::new(&memory, &reader, &arranged, None);
        scan.item(&item);
        let places = (0..targets.len()).map(|target| {
            let Found { spot, by_managed } = scan.best(arranged.group_of(target))?;
            assert_eq!((spot.rank(), by_managed), (Rank::Heap, false));
            Some((spot.address() - start) / 8)
        });
        let places: Vec<_> = places.collect();
        let in_heap = scan.in_heap().expect("not too many");
        assert_eq!(in_heap.len(), places.iter().flatten().count());
        (places, reader.left.load(Ordering::Relaxed))
    }

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn finds_words_across_windows() {
        let mut words = vec![5_u64; 100_000];
        words[0] = 0x7000_0000;
        words[16_384] = 0x7100_000f;
        words[99_999] = 0x7200_0008;
        words[50_000] = 0x7300_0010;
        let targets = [0x7000_0000, 0x7100_0000, 0x7200_0000, 0x7300_0000];
        let (found, left) = scan(&words, &targets, &[], HOUR);
        assert_eq!(found, [Some(0), Some(16_384), Some(99_999), None]);
        assert_eq!(left, 0);
    }

    #[test]
    fn what_is_in_holes_is_not_found() {
        let mut words = vec![0_u64; 40_000];
        let targets: Vec<_> = (1..=5).map(|number| number << 32).collect();
        for (target, at) in targets.iter().zip([0, 99, 100, 199, 200]) {
            words[at] = *target;
        }
        let holes = [0..1, 100..200, 20_000..30_000];
        let (found, _) = scan(&words, &targets, &holes, HOUR);
        assert_eq!(found, [None, Some(99), None, None, Some(200)]);
    }

    #[test]
    fn after_the_deadline_it_counts_what_is_left() {
        let words = vec![0x7000_0000_u64; 1000];
        let (found, left) = scan(&words, &[0x7000_0000], &[], Duration::ZERO);
        assert_eq!((found, left), (vec![None], 8000));
    }

    /// All places in the heap are noted, but where an address is in a better place.
    #[test]
    fn places_in_the_heap_are_all_noted() {
        let target = |start| Target {
            start,
            len: 16,
            is_managed: false,
        };
        let targets = Targets::new(&[target(0x7000_0000), target(0x7100_0000)]);
        let memory = Memory::open();
        let reader = Reader::new(&memory, &[], Instant::now() + HOUR);
        let scan = Scan::new(&memory, &reader, &targets, None);
        scan.value(0x7000_0008, Rank::Heap, 0x5000);
        scan.value(0x7000_0000, Rank::Stack, 0x7fff_0000);
        scan.value(0x7000_0000, Rank::Heap, 0x4000);
        scan.value(0x7100_0000, Rank::Global, 0x3000);
        scan.value(0x7100_0000, Rank::Heap, 0x6000);
        let at = |rank, address| {
            let spot = Spot::new(rank, address);
            Some(Found {
                spot,
                by_managed: false,
            })
        };
        assert_eq!(scan.best(0), at(Rank::Heap, 0x4000));
        assert_eq!(scan.beside_heap(0), at(Rank::Stack, 0x7fff_0000));
        assert_eq!(scan.best(1), at(Rank::Global, 0x3000));
        let places = scan.in_heap();
        assert_eq!(places, Some(vec![(0, 0x4000), (0, 0x5000)]));
    }
}
