//! Freed memory in the heaps of glibc's `malloc`, and the state of its arenas: what they hold is not the program's.
//!
//! A heap is a chain of chunks, each of which has its size in front, so all of it can be walked. A chunk is free when the
//! next one's `PREV_INUSE` bit is clear, or when it is in a thread cache or a fast bin. Chunks of a thread cache carry a key,
//! but so do some that are in use: when a thread ends, its chunks go to bins of the arena with the key, and `malloc` does
//! not always clear it. A heap whose chain is not consistent up to its end is searched as a whole: nothing is left out by
//! mistake.

use std::ops::{Range, RangeInclusive};

use super::malloc_state::{MallocState, words_of};
use super::maps::Region;
use super::memory::{Memory, bytes_of};

const PREV_INUSE: u64 = 1;
const IS_MMAPPED: u64 = 2;
const SMALLEST: u64 = 32;
/// A block with a mapping of its own is larger, unless the program says otherwise: then it counts as memory of `mmap`.
const SMALLEST_MAPPED: u64 = 128 << 10;
/// Alignment and largest size of a heap other than the main one.
const HEAP: u64 = 64 << 20;
/// Where `struct malloc_state` has the fast bins, and what it has at most.
const FAST_BINS: u64 = 0x10;
const STATE: u64 = 0x8c0;
/// What chunks may be in fast bins, and in thread caches.
const FAST_CHUNKS: usize = 1 << 20;
/// Sizes that the chunk of a `struct tcache_perthread_struct` may have: they differ from version to version.
const THREAD_CACHE: RangeInclusive<u64> = 0x250..=0x400;

/// A heap.
pub(super) struct Heap {
    /// Where the first chunk may be: it depends on the version.
    starts: Vec<u64>,
    end: u64,
    /// Not of the main heap.
    arena: Option<Arena>,
}

/// What a heap other than the main one begins with.
struct Arena {
    /// `heap_info`, which other structures may follow.
    start: u64,
    /// The arena's `struct malloc_state`.
    state: u64,
}

/// The addresses of a heap's chunks, and the headers and sizes of those in use.
pub(super) type Used = (Range<u64>, Vec<(u64, u64)>);

/// What the search knows about glibc's `malloc` before it stops the threads.
pub(super) struct Glibc {
    /// The mark of chunks in thread caches.
    key: Option<u64>,
    /// The links of fast bins are mangled.
    mangled: bool,
    /// Writable data of the C library, which the main arena's structure is in, and of the dynamic linker.
    data: Vec<Range<u64>>,
}

/// The main arena's fast bins, and where `malloc` has pointers of its own beside the heaps.
#[derive(Default)]
pub(super) struct MainArena {
    fast_bins: Option<u64>,
    pub(super) pointers: Vec<Range<u64>>,
}

impl Glibc {
    /// Uses `malloc` and `free`.
    pub(super) fn examine(data: Vec<Range<u64>>) -> Glibc {
        // SAFETY: a static string.
        let version = unsafe { std::ffi::CStr::from_ptr(libc::gnu_get_libc_version()) };
        let version = version.to_str().unwrap_or("");
        let mut numbers = version
            .split('.')
            .map(|part| part.parse::<u32>().unwrap_or(0));
        let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        Glibc {
            key: key(),
            mangled: version >= (2, 32),
            data,
        }
    }

    /// The heaps in the process's mappings.
    pub(super) fn heaps(&self, memory: &Memory, regions: &[Region]) -> Vec<Heap> {
        let mut heaps = Vec::new();
        for region in regions.iter().filter(|region| region.is_searched()) {
            let Range { start, end } = region.addresses;
            if region.name == "[heap]" {
                heaps.push(Heap {
                    starts: vec![start],
                    end,
                    arena: None,
                });
            } else if region.is_anonymous() {
                let mut at = start.next_multiple_of(HEAP);
                while at < end {
                    heaps.extend(heap_at(memory, at, end));
                    at += HEAP;
                }
            }
        }
        heaps
    }

    /// The blocks in the threads' caches, sorted. `storage` are the C library's thread-local variables, one of which leads to
    /// the cache. `None` where they are not known.
    pub(super) fn cached(&self, memory: &Memory, storage: &[Range<u64>]) -> Option<Vec<u64>> {
        if storage.is_empty() {
            return None;
        }
        let mut blocks = Vec::new();
        for variables in storage {
            for cache in words_of(memory, variables.clone()) {
                let header = cache.checked_sub(8).filter(|_| cache.is_multiple_of(16));
                let header = header.and_then(|header| memory.words::<1>(header));
                let size = header.map_or(0, |[header]| header & !7);
                if THREAD_CACHE.contains(&size) {
                    for first in words_of(memory, cache..cache + size - 8) {
                        self.add_chain(memory, first, &mut blocks);
                    }
                }
            }
        }
        blocks.sort_unstable();
        Some(blocks)
    }

    /// Adds the blocks of a bin of a thread cache.
    fn add_chain(&self, memory: &Memory, first: u64, blocks: &mut Vec<u64>) {
        let mut block = first;
        while block != 0 && block.is_multiple_of(16) && blocks.len() < FAST_CHUNKS {
            match memory.words::<2>(block) {
                Some([link, key]) if Some(key) == self.key => {
                    blocks.push(block);
                    block = self.linked(block, link);
                }
                _ => return,
            }
        }
    }

    /// What a link leads to.
    fn linked(&self, place: u64, link: u64) -> u64 {
        match self.mangled {
            true => link ^ (place >> 12),
            false => link,
        }
    }

    /// Whether a block that carries the key is in a thread cache. Where these are not known: whether it is linked as in one.
    fn is_cached(&self, memory: &Memory, cached: Option<&[u64]>, block: u64) -> bool {
        if let Some(cached) = cached {
            return cached.binary_search(&block).is_ok();
        }
        let Some([link]) = memory.words::<1>(block) else {
            return false;
        };
        let next = self.linked(block, link);
        let key = || memory.words::<1>(next.wrapping_add(8)).map(|[key]| key);
        next == 0 || (next.is_multiple_of(16) && key() == self.key)
    }

    /// The addresses of a heap's chunks and the blocks in use, with their sizes: all but the free ones, which are given, sorted.
    /// `None` where it is not consistent.
    pub(super) fn used_chunks(
        &self,
        memory: &Memory,
        heap: &Heap,
        free: &[Range<u64>],
    ) -> Option<Used> {
        let mut starts = heap.starts.iter();
        let (start, chunks) = starts.find_map(|start| {
            let mut chunks = Vec::new();
            let add = |at: u64, size: u64, _: Option<Range<u64>>| chunks.push((at, size));
            self.walk(memory, *start..heap.end, None, add)?;
            Some((*start, chunks))
        })?;
        let mut free = free.iter().peekable();
        let used = chunks.into_iter().filter(|(at, _)| {
            while free.next_if(|free| free.start < at + 16).is_some() {}
            free.peek().is_none_or(|free| free.start != at + 16)
        });
        Some((start..heap.end, used.collect()))
    }

    /// The large blocks that have a mapping of their own, at the beginnings of mappings: their headers, and their sizes.
    pub(super) fn mapped_chunks(memory: &Memory, regions: &[Region]) -> Vec<(u64, u64)> {
        let mut chunks = Vec::new();
        let anonymous = regions
            .iter()
            .filter(|region| region.is_searched() && region.is_anonymous());
        for Range { start, end } in anonymous.map(|region| region.addresses.clone()) {
            let mut at = start;
            // Neighbours may be one mapping.
            while let Some([before, head]) = memory.words::<2>(at) {
                let size = head & !7;
                let is_chunk = before == 0 && head & 7 == IS_MMAPPED && size % 4096 == 0;
                if !is_chunk || size < SMALLEST_MAPPED || size > end - at {
                    break;
                }
                chunks.push((at, size));
                at += size;
                if at == end {
                    break;
                }
            }
        }
        chunks
    }

    /// The main arena. Where its structure is not found, all pointers in the C library's data count as the program's.
    pub(super) fn main_arena(&self, memory: &Memory, regions: &[Region]) -> MainArena {
        let main_heap = regions.iter().find(|region| region.name == "[heap]");
        let first = main_heap.map(|region| region.addresses.start);
        let mut arena = MainArena::default();
        for data in &self.data {
            // Where the heap began, for `sbrk`: without a thread cache, the header of a block of the program.
            let words = words_of(memory, data.clone()).into_iter().enumerate();
            let is_first = words.filter(|(_, word)| Some(*word) == first);
            let places = is_first.map(|(index, _)| data.start + 8 * index as u64);
            arena.pointers.extend(places.map(|at| at..at + 8));
            if let Some(state) = MallocState::find(memory, data.clone()) {
                arena.fast_bins = state.fast_bins;
                arena.pointers.push(state.pointers);
            }
        }
        arena
    }

    /// What of a heap is not the program's, sorted: the free chunks, and the state of an arena in front of them. `cached` are the
    /// blocks in thread caches, if those are known.
    pub(super) fn holes(
        &self,
        memory: &Memory,
        heap: &Heap,
        main_arena: &MainArena,
        cached: Option<&[u64]>,
    ) -> Vec<Range<u64>> {
        let mut starts = heap.starts.iter();
        let Some((mut holes, first)) = starts.find_map(|start| {
            let mut free = Vec::new();
            let add = |_, _, chunk: Option<Range<u64>>| free.extend(chunk);
            self.walk(memory, *start..heap.end, cached, add)?;
            Some((free, *start))
        }) else {
            // Its blocks are not known, but the arena may have others.
            let state = heap.arena.as_ref().and_then(|arena| {
                let end = heap.end.min(arena.state + STATE);
                MallocState::find(memory, arena.state..end)
            });
            return state.into_iter().map(|state| state.pointers).collect();
        };
        let fast_bins = match &heap.arena {
            Some(arena) => {
                holes.push(arena.start..first);
                Some(arena.state + FAST_BINS)
            }
            None => main_arena.fast_bins,
        };
        if let Some(fast_bins) = fast_bins {
            self.fast_chunks(memory, fast_bins, first..heap.end, &mut holes);
        }
        holes.sort_unstable_by_key(|hole| hole.start);
        holes
    }

    /// Visits a chain of chunks: the header and the size of each, and its memory if it is free. `None` where the chain does not lead
    /// exactly to the end.
    fn walk(
        &self,
        memory: &Memory,
        Range { start, end }: Range<u64>,
        cached: Option<&[u64]>,
        mut visit: impl FnMut(u64, u64, Option<Range<u64>>),
    ) -> Option<()> {
        let mut window = Window::new(memory, end);
        let mut at = start;
        loop {
            let head = window.word(at + 8)?;
            let size = head & !7;
            if size == 16 && window.word(at + 24).is_some_and(|next| next & !7 == 0) {
                // The two chunks at the end of a heap that is not the arena's last.
                return Some(());
            }
            if size < SMALLEST || size % 16 != 0 || size > end - at || head & IS_MMAPPED != 0 {
                return None;
            }
            let next = at + size;
            if next == end {
                visit(at, size, Some(at + 16..end));
                return Some(());
            }
            let has_key = self.key.is_some() && window.word(at + 24) == self.key;
            let is_free = if window.word(next + 8)? & PREV_INUSE == 0 {
                Some(at + 16..next)
            } else if has_key && self.is_cached(memory, cached, at + 16) {
                // The user's part of a chunk reaches into the next one's first word.
                Some(at + 16..next + 8)
            } else {
                None
            };
            visit(at, size, is_free);
            at = next;
        }
    }

    /// Adds the chunks of the fast bins that lie in the heap.
    fn fast_chunks(
        &self,
        memory: &Memory,
        fast_bins: u64,
        heap: Range<u64>,
        free: &mut Vec<Range<u64>>,
    ) {
        let Some(bins) = memory.words::<10>(fast_bins) else {
            return;
        };
        let mut count = 0;
        for first in bins {
            let mut chunk = first;
            while chunk != 0 && chunk % 16 == 0 && count < FAST_CHUNKS {
                // Head, link.
                let Some([head, link]) = memory.words::<2>(chunk + 8) else {
                    break;
                };
                let size = head & !7;
                if !(SMALLEST..=176).contains(&size) {
                    break;
                }
                if heap.contains(&chunk) {
                    free.push(chunk + 16..chunk + size + 8);
                }
                count += 1;
                chunk = self.linked(chunk + 16, link);
            }
        }
    }
}

/// The mark that `free` leaves in chunks of the thread cache: what two freed blocks of different sizes have in common.
fn key() -> Option<u64> {
    let mark = |size| {
        // SAFETY: the block is valid until it is freed. Reading it afterwards is what this is about; the memory stays
        // mapped, as blocks of this size are never unmapped one by one.
        unsafe {
            let block = libc::malloc(size).cast::<u64>();
            if block.is_null() {
                return 0;
            }
            block.add(1).write_volatile(0);
            libc::free(std::hint::black_box(block).cast());
            block.add(1).read_volatile()
        }
    };
    let (first, second) = (mark(24), mark(200));
    (first == second && first != 0).then_some(first)
}

/// A heap of an arena other than the main one, if there is one at an aligned address.
fn heap_at(memory: &Memory, at: u64, region_end: u64) -> Option<Heap> {
    // `heap_info`: the arena, the arena's previous heap, the size.
    let [arena, previous, size] = memory.words::<3>(at)?;
    let end = at.checked_add(size)?;
    let is_arena = (1..=0x100).contains(&(arena % HEAP)) && arena % 8 == 0;
    if !is_arena || size == 0 || size % 4096 != 0 || size > HEAP || end > region_end {
        return None;
    }
    let starts = if arena - arena % HEAP == at {
        if previous != 0 {
            return None;
        }
        // The structure of the arena precedes the first chunk. Nothing in it is taken for one: where it is not found, the heap is
        // searched as a whole.
        MallocState::find(memory, arena..end.min(arena + STATE))
            .map(|state| state.end().next_multiple_of(16))
            .into_iter()
            .collect()
    } else {
        if previous == 0 || previous % HEAP != 0 {
            return None;
        }
        vec![at + 0x20, at + 0x30, at + 0x40]
    };
    Some(Heap {
        starts,
        end,
        arena: Some(Arena {
            start: at,
            state: arena,
        }),
    })
}

/// Reads words that follow each other through a buffer.
struct Window<'a> {
    memory: &'a Memory,
    end: u64,
    start: u64,
    words: Vec<u64>,
    read: usize,
}

/// Words of a window: 32 KiB.
const WINDOW: usize = 4096;

impl Window<'_> {
    fn new(memory: &Memory, end: u64) -> Window<'_> {
        Window {
            memory,
            end,
            start: 0,
            words: vec![0; WINDOW],
            read: 0,
        }
    }

    fn word(&mut self, address: u64) -> Option<u64> {
        let index = address.wrapping_sub(self.start) / 8;
        if index < self.read as u64 {
            return Some(self.words[index as usize]);
        }
        if address >= self.end {
            return None;
        }
        let length = (self.end - address).min(8 * WINDOW as u64) as usize;
        self.start = address;
        let buffer = &mut bytes_of(&mut self.words)[..length];
        self.read = self.memory.read(address, buffer) / 8;
        (self.read > 0).then(|| self.words[0])
    }
}
