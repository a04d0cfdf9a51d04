//! Compares each aligned word of memory with the targets.

use std::iter;
use std::mem;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use super::memory::{Memory, PAGE, bytes_of};
use super::python::Python;
use super::targets::Targets;

/// What a place is worth in a report: the smaller, the more it says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Rank {
    Global = 0,
    ThreadLocal,
    Heap,
    Mapping,
    Stack,
    Register,
}

/// Where the program holds an address that is found in a part of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Holder {
    /// There.
    Own(Rank),
    /// In managed memory. This is [`Scan::best`] of the block, so that all blocks of a list have the place of the first.
    Managed(u64),
}

/// Where a target was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Found {
    pub(super) rank: Rank,
    /// For a register the thread's number.
    pub(super) address: u64,
    /// The address of managed memory was found there, which leads to the target.
    pub(super) by_managed: bool,
}

/// A part of memory for one thread of the search.
pub(super) struct Item {
    pub(super) addresses: Range<u64>,
    pub(super) holder: Holder,
    /// Untouched pages hold nothing.
    pub(super) private: bool,
    /// The free chunks that touch it, as a range of [`Scan::holes`].
    pub(super) holes: Range<usize>,
}

/// Bytes of a window: it stays in a core's cache.
const WINDOW: u64 = 128 << 10;
/// Longest item.
const ITEM: u64 = 1 << 20;
const ADDRESS_BITS: u32 = 56;
/// The bit of a place that leads to the target by managed memory. Others are better.
const BY_MANAGED: u64 = 1 << 63;
const NOT_FOUND: u64 = u64::MAX;

/// Addresses in parts of the length of items.
pub(super) fn parts(addresses: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let Range { start: mut at, end } = addresses;
    iter::from_fn(move || {
        let start = at;
        at = (at - at % ITEM + ITEM).min(end);
        (start < end).then_some(start..at)
    })
}

/// A search in progress.
pub(super) struct Scan<'a> {
    pub(super) memory: &'a Memory,
    pub(super) targets: &'a Targets,
    pub(super) python: Option<Python>,
    /// Free chunks, sorted.
    pub(super) holes: Vec<Range<u64>>,
    pub(super) deadline: Instant,
    /// For each group of targets the best place: rank and address, so that the smallest value is the best.
    best: Vec<AtomicU64>,
    /// Groups of managed memory that were found and not searched yet.
    reached: Mutex<Vec<usize>>,
    pub(super) searched: AtomicU64,
    /// Bytes for which there was no time.
    pub(super) left: AtomicU64,
    /// Bytes that could not be read.
    pub(super) unread: AtomicU64,
    /// The same of managed memory.
    pub(super) unread_managed: AtomicU64,
    pub(super) late: AtomicBool,
    /// Buffers that no thread uses now.
    buffers: Mutex<Vec<Buffers>>,
}

/// What a thread reads into.
struct Buffers {
    words: Vec<u64>,
    pages: Vec<u64>,
}

impl Buffers {
    fn new() -> Buffers {
        Buffers {
            words: vec![0; (WINDOW / 8) as usize],
            pages: vec![0; (ITEM / PAGE + 2) as usize],
        }
    }
}

impl<'a> Scan<'a> {
    pub(super) fn new(
        memory: &'a Memory,
        targets: &'a Targets,
        python: Option<Python>,
        holes: Vec<Range<u64>>,
        deadline: Instant,
    ) -> Scan<'a> {
        Scan {
            memory,
            targets,
            python,
            holes,
            deadline,
            best: (0..targets.group_count())
                .map(|_| AtomicU64::new(NOT_FOUND))
                .collect(),
            reached: Mutex::new(Vec::new()),
            searched: AtomicU64::new(0),
            left: AtomicU64::new(0),
            unread: AtomicU64::new(0),
            unread_managed: AtomicU64::new(0),
            late: AtomicBool::new(false),
            buffers: Mutex::new(Vec::new()),
        }
    }

    /// The best place of a target.
    pub(super) fn best(&self, target: usize) -> Option<Found> {
        let best = self.best[self.targets.group_of(target)].load(Ordering::Relaxed);
        let rank = match (best & !BY_MANAGED) >> ADDRESS_BITS {
            0 => Rank::Global,
            1 => Rank::ThreadLocal,
            2 => Rank::Heap,
            3 => Rank::Mapping,
            4 => Rank::Stack,
            5 => Rank::Register,
            _ => return None,
        };
        Some(Found {
            rank,
            address: best & ((1 << ADDRESS_BITS) - 1),
            by_managed: best & BY_MANAGED != 0,
        })
    }

    /// The managed memory that was found since the last call, and what holds the addresses in it.
    pub(super) fn reached(&self) -> Vec<(Range<u64>, Holder)> {
        let reached = self
            .reached
            .lock()
            .map(|mut reached| mem::take(&mut *reached));
        let addresses = |group| {
            let addresses = self.targets.managed().get(&group)?.clone();
            let best = self.best[group].load(Ordering::Relaxed);
            Some((addresses, Holder::Managed(best)))
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
            Holder::Own(rank) => (rank as u64) << ADDRESS_BITS | address,
            Holder::Managed(place) => place | BY_MANAGED,
        };
        let mut is_free = None;
        self.targets.find(value, |group| {
            if place < self.best[group].load(Ordering::Relaxed)
                && !*is_free.get_or_insert_with(|| self.is_free_in_python(holder, address))
            {
                let before = self.best[group].fetch_min(place, Ordering::Relaxed);
                if before == NOT_FOUND
                    && self.targets.managed().contains_key(&group)
                    && let Ok(mut reached) = self.reached.lock()
                {
                    reached.push(group);
                }
            }
        });
    }

    fn is_free_in_python(&self, holder: Holder, address: u64) -> bool {
        let is_heap = holder == Holder::Own(Rank::Heap);
        let python = self.python.as_ref().filter(|_| is_heap);
        python.is_some_and(|python| python.is_free(self.memory, address))
    }

    /// Searches an item.
    pub(super) fn item(&self, item: &Item) {
        let length = item.addresses.end - item.addresses.start;
        if self.late.load(Ordering::Relaxed) || Instant::now() >= self.deadline {
            self.late.store(true, Ordering::Relaxed);
            self.left.fetch_add(length, Ordering::Relaxed);
            return;
        }
        let free = self.buffers.lock().ok().and_then(|mut free| free.pop());
        let mut buffers = free.unwrap_or_else(Buffers::new);
        self.read_item(item, &mut buffers);
        if let Ok(mut free) = self.buffers.lock() {
            free.push(buffers);
        }
    }

    fn read_item(&self, item: &Item, buffers: &mut Buffers) {
        let Buffers { words, pages } = buffers;
        let Range { start, end } = item.addresses;
        let first = start / PAGE;
        let count = (end.div_ceil(PAGE) - first) as usize;
        let pages = &mut pages[..count];
        match item.private {
            true => self.memory.populated(first * PAGE, pages),
            false => pages.fill(1),
        }
        let mut page = 0;
        let mut searched = 0;
        while page < count {
            if pages[page] == 0 {
                page += 1;
                continue;
            }
            let mut behind = page + 1;
            while behind < count && pages[behind] != 0 && (behind - page) as u64 * PAGE < WINDOW {
                behind += 1;
            }
            let from = ((first + page as u64) * PAGE).max(start);
            let to = ((first + behind as u64) * PAGE).min(end);
            // Words are aligned; pieces may begin and end anywhere.
            let from = from.next_multiple_of(8);
            let to = to - to % 8;
            if from < to {
                searched += self.window(item, from..to, words);
            }
            page = behind;
        }
        self.searched.fetch_add(searched, Ordering::Relaxed);
    }

    /// Reads a window and searches it. Returns how many bytes could be read.
    fn window(&self, item: &Item, addresses: Range<u64>, words: &mut [u64]) -> u64 {
        let (mut at, mut unread) = (addresses.start, 0);
        while at < addresses.end {
            let length = (addresses.end - at) as usize;
            let read = self.memory.read(at, &mut bytes_of(words)[..length]) / 8;
            self.without_holes(item, at, &words[..read]);
            at += 8 * read as u64;
            // The page that could not be read; all of them if none can.
            let next = match self.memory.is_refused() {
                true => addresses.end,
                false => (at - at % PAGE + PAGE).min(addresses.end),
            };
            if at < next {
                unread += next - at;
                at = next;
            }
        }
        match item.holder {
            Holder::Managed(_) => self.unread_managed.fetch_add(unread, Ordering::Relaxed),
            Holder::Own(_) if item.private || self.memory.is_refused() => {
                self.unread.fetch_add(unread, Ordering::Relaxed)
            }
            // The program cannot read shared memory either behind the end of its file.
            Holder::Own(_) => 0,
        };
        addresses.end - addresses.start - unread
    }

    /// Searches words that were read at `start`, without the holes.
    fn without_holes(&self, item: &Item, start: u64, words: &[u64]) {
        let end = start + 8 * words.len() as u64;
        let mut at = start;
        for hole in &self.holes[item.holes.clone()] {
            if hole.end <= at {
                continue;
            }
            if hole.start >= end {
                break;
            }
            self.words(item, start, words, at..hole.start.max(at));
            at = hole.end.min(end);
        }
        self.words(item, start, words, at..end);
    }

    /// Searches a part of a window that begins at `start`.
    fn words(&self, item: &Item, start: u64, words: &[u64], part: Range<u64>) {
        let from = (part.start.next_multiple_of(8) - start) as usize / 8;
        let to = (part.end - start) as usize / 8;
        if from >= to {
            return;
        }
        let (low, span) = self.targets.bounds();
        // Eight at a time: nearly always none of them lies between the lowest and the highest target.
        let mut at = from;
        for block in words[from..to].chunks(8) {
            let mut any = false;
            for word in block {
                any |= word.wrapping_sub(low) < span;
            }
            if any {
                for (index, word) in block.iter().enumerate() {
                    if word.wrapping_sub(low) < span {
                        let address = start + 8 * (at + index) as u64;
                        self.candidate(*word, item.holder, address);
                    }
                }
            }
            at += block.len();
        }
        if let Some(python) = &self.python {
            for (index, word) in words[from..to].iter().enumerate() {
                if let Some(value) = Python::digits(*word)
                    && value.wrapping_sub(low) < span
                {
                    let address = start + 8 * (from + index) as u64;
                    if python.is_integer(self.memory, address) {
                        self.candidate(value, item.holder, address);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::Target;
    use std::time::Duration;

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
            addresses: start..start + 8 * words.len() as u64,
            holder: Holder::Own(Rank::Heap),
            private: true,
            holes: 0..holes.len(),
        };
        let scan = Scan::new(&memory, &arranged, None, holes, Instant::now() + time);
        scan.item(&item);
        let places = (0..targets.len()).map(|target| {
            let found = scan.best(target)?;
            assert_eq!((found.rank, found.by_managed), (Rank::Heap, false));
            Some((found.address - start) / 8)
        });
        (places.collect(), scan.left.load(Ordering::Relaxed))
    }

    #[test]
    fn parts_end_at_multiples() {
        let all: Vec<_> = parts(ITEM - 8..3 * ITEM + 16).collect();
        let expected = [
            ITEM - 8..ITEM,
            ITEM..2 * ITEM,
            2 * ITEM..3 * ITEM,
            3 * ITEM..3 * ITEM + 16,
        ];
        assert_eq!(all, expected);
        assert_eq!(parts(ITEM..ITEM).count(), 0);
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
}
