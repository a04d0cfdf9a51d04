//! Reads parts of memory for a search: without untouched pages, without freed memory, and what cannot be read is counted.

use std::iter;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use super::memory::{Memory, bytes_of};

/// A part of memory for one thread of the search.
pub(super) struct Part {
    pub(super) addresses: Range<u64>,
    /// Untouched pages hold nothing.
    pub(super) private: bool,
    /// The holes that touch it, as a range of [`Reader::holes`].
    pub(super) holes: Range<usize>,
}

/// Bytes of a window: it stays in a core's cache.
const WINDOW: u64 = 128 << 10;
/// Longest part.
const PART: u64 = 1 << 20;

/// Addresses in parts of the length of a [`Part`].
pub(super) fn parts(addresses: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let Range { start: mut at, end } = addresses;
    iter::from_fn(move || {
        let start = at;
        at = (at - at % PART + PART).min(end);
        (start < end).then_some(start..at)
    })
}

/// Those of the sorted holes that touch the addresses.
pub(super) fn holes_in(holes: &[Range<u64>], addresses: &Range<u64>) -> Range<usize> {
    let first = holes.partition_point(|hole| hole.end <= addresses.start);
    let behind = first + holes[first..].partition_point(|hole| hole.start < addresses.end);
    first..behind
}

/// What is read at a time of these addresses: aligned words of pages that have contents, at most a window. There is an entry for
/// each page of this size that the addresses touch; zero for one without contents.
fn pieces(addresses: &Range<u64>, size: u64, pages: &[u64]) -> impl Iterator<Item = Range<u64>> {
    let Range { start, end } = *addresses;
    let first = start / size;
    // A piece has one page at least.
    let most = (WINDOW / size).max(1) as usize;
    let mut page = 0;
    iter::from_fn(move || {
        while page < pages.len() {
            let from = page;
            page += 1;
            if pages[from] == 0 {
                continue;
            }
            while page < pages.len() && pages[page] != 0 && page - from < most {
                page += 1;
            }
            // Words are aligned; addresses may begin and end anywhere.
            let from = ((first + from as u64) * size).max(start);
            let to = ((first + page as u64) * size).min(end);
            let piece = from.next_multiple_of(8)..to - to % 8;
            if !piece.is_empty() {
                return Some(piece);
            }
        }
        None
    })
}

/// Whether there is memory at an address, which may be one that cannot be read.
fn is_mapped(address: u64, size: u64) -> bool {
    let page = std::ptr::without_provenance_mut((address - address % size) as usize);
    let mut resident = 0;
    // SAFETY: writes one byte, for one page; the kernel checks the address.
    let code = unsafe { libc::mincore(page, size as usize, &mut resident) };
    // SAFETY: the thread's own variable.
    code == 0 || unsafe { *libc::__errno_location() } != libc::ENOMEM
}

/// Reads for the threads of a search.
pub(super) struct Reader<'a> {
    memory: &'a Memory,
    /// What is not the program's, sorted: free chunks, and the state of `malloc`.
    holes: &'a [Range<u64>],
    deadline: Instant,
    pub(super) searched: AtomicU64,
    /// Bytes for which there was no time.
    pub(super) left: AtomicU64,
    late: AtomicBool,
    /// Buffers that no thread uses now.
    buffers: Mutex<Vec<Buffers>>,
}

/// What a thread reads into.
struct Buffers {
    words: Vec<u64>,
    pages: Vec<u64>,
}

impl Buffers {
    fn new(page: u64) -> Buffers {
        Buffers {
            words: vec![0; (WINDOW / 8) as usize],
            pages: vec![0; (PART / page + 2) as usize],
        }
    }
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        memory: &'a Memory,
        holes: &'a [Range<u64>],
        deadline: Instant,
    ) -> Reader<'a> {
        Reader {
            memory,
            holes,
            deadline,
            searched: AtomicU64::new(0),
            left: AtomicU64::new(0),
            late: AtomicBool::new(false),
            buffers: Mutex::new(Vec::new()),
        }
    }

    /// Whether the time is over.
    pub(super) fn is_over(&self) -> bool {
        if Instant::now() >= self.deadline {
            self.late.store(true, Ordering::Relaxed);
        }
        self.late.load(Ordering::Relaxed)
    }

    /// Reads a part: calls the function with the aligned words at an address, piece by piece. Returns how many bytes could not be
    /// read.
    pub(super) fn read(&self, part: &Part, visit: &mut dyn FnMut(u64, &[u64])) -> u64 {
        let length = part.addresses.end - part.addresses.start;
        if self.is_over() {
            self.left.fetch_add(length, Ordering::Relaxed);
            return 0;
        }
        let free = self.buffers.lock().ok().and_then(|mut free| free.pop());
        let mut buffers = free.unwrap_or_else(|| Buffers::new(self.memory.page()));
        let unread = self.read_pages(part, &mut buffers, visit);
        if let Ok(mut free) = self.buffers.lock() {
            free.push(buffers);
        }
        unread
    }

    fn read_pages(
        &self,
        part: &Part,
        buffers: &mut Buffers,
        visit: &mut dyn FnMut(u64, &[u64]),
    ) -> u64 {
        let Buffers { words, pages } = buffers;
        let size = self.memory.page();
        let Range { start, end } = part.addresses;
        let first = start / size;
        let count = (end.div_ceil(size) - first) as usize;
        let pages = &mut pages[..count];
        match part.private {
            true => self.memory.populated(first * size, pages),
            false => pages.fill(1),
        }
        let (mut searched, mut unread) = (0, 0);
        for piece in pieces(&part.addresses, size, pages) {
            let length = piece.end - piece.start;
            let missing = self.window(part, piece, words, visit);
            searched += length - missing;
            unread += missing;
        }
        self.searched.fetch_add(searched, Ordering::Relaxed);
        unread
    }

    /// Reads a window. Returns how many bytes could not be read.
    fn window(
        &self,
        part: &Part,
        addresses: Range<u64>,
        words: &mut [u64],
        visit: &mut dyn FnMut(u64, &[u64]),
    ) -> u64 {
        let page = self.memory.page();
        let (mut at, mut unread) = (addresses.start, 0);
        while at < addresses.end {
            let length = (addresses.end - at) as usize;
            let read = self.memory.read(at, &mut bytes_of(words)[..length]) / 8;
            self.without_holes(part, at, &words[..read], visit);
            at += 8 * read as u64;
            // The page that could not be read; all of them if none can.
            let next = match self.memory.is_refused() {
                true => addresses.end,
                false => (at - at % page + page).min(addresses.end),
            };
            if at < next {
                // A thread of the driver, which is not stopped, may have ended since, and its stack with it.
                if self.memory.is_refused() || is_mapped(at, page) {
                    unread += next - at;
                }
                at = next;
            }
        }
        unread
    }

    /// Visits words that were read at `start`, without the holes.
    fn without_holes(
        &self,
        part: &Part,
        start: u64,
        words: &[u64],
        visit: &mut dyn FnMut(u64, &[u64]),
    ) {
        let end = start + 8 * words.len() as u64;
        let mut between = |from: u64, to: u64| {
            let from = (from.next_multiple_of(8) - start) as usize / 8;
            let to = (to - start) as usize / 8;
            if from < to {
                visit(start + 8 * from as u64, &words[from..to]);
            }
        };
        let mut at = start;
        for hole in &self.holes[part.holes.clone()] {
            if hole.end <= at {
                continue;
            }
            if hole.start >= end {
                break;
            }
            between(at, hole.start.max(at));
            at = hole.end.min(end);
        }
        between(at, end);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn memory_that_cannot_be_read_is_mapped_and_memory_that_was_unmapped_is_not() {
        let size = Memory::open().page();
        // SAFETY: new memory, of which nothing knows.
        unsafe {
            let (none, flags) = (libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let page = libc::mmap(std::ptr::null_mut(), size as usize, none, flags, -1, 0);
            assert_ne!(page, libc::MAP_FAILED);
            assert!(is_mapped(page as u64 + 8, size));
            libc::munmap(page, size as usize);
        }
        // Where it was, another thread may map something else. Nothing is at null.
        assert!(!is_mapped(8, size));
    }

    #[test]
    fn parts_end_at_multiples() {
        let all: Vec<_> = parts(PART - 8..3 * PART + 16).collect();
        let expected = [
            PART - 8..PART,
            PART..2 * PART,
            2 * PART..3 * PART,
            3 * PART..3 * PART + 16,
        ];
        assert_eq!(all, expected);
        assert_eq!(parts(PART..PART).count(), 0);
    }

    #[test]
    fn pieces_are_the_pages_with_contents() {
        for size in [4096, 16384, 65536] {
            let at = |page: u64| (1 << 20) + page * size;
            let addresses = at(0) + 20..at(6) - 3;
            let all: Vec<_> = pieces(&addresses, size, &[1, 0, 1, 1, 0, 1]).collect();
            let last = at(5)..at(6) - 8;
            let mut expected = vec![at(0) + 24..at(1), at(2)..at(4), last];
            assert_eq!(all, expected, "{size}");
            // A page whose only bytes are no whole word.
            expected.pop();
            let all: Vec<_> = pieces(&(at(0) + 20..at(5) + 3), size, &[1, 0, 1, 1, 0, 1]).collect();
            assert_eq!(all, expected, "{size}");
            // All of it, in windows.
            let count = 3 * WINDOW / size;
            let all: Vec<_> = pieces(&(at(0)..at(count)), size, &vec![1; count as usize]).collect();
            let windows = [0, 1, 2].map(|number| at(0) + number * WINDOW);
            assert_eq!(all, windows.map(|start| start..start + WINDOW), "{size}");
        }
    }

    /// Where pages are longer than the ones of this machine, whole pages are read and skipped.
    #[test]
    fn all_words_are_read_whatever_the_size_of_pages() {
        let words: Vec<u64> = (0..3 * PART / 8).collect();
        let start = words.as_ptr().addr() as u64;
        for size in [4096, 16384, 65536] {
            let memory = Memory::with_page(size);
            let deadline = Instant::now() + Duration::from_secs(600);
            let reader = Reader::new(&memory, &[], deadline);
            let mut seen = 0;
            for addresses in parts(start..start + 8 * words.len() as u64) {
                let part = Part {
                    addresses,
                    private: false,
                    holes: 0..0,
                };
                let unread = reader.read(&part, &mut |at, read| {
                    assert_eq!(at, start + 8 * seen);
                    assert!(read.iter().copied().eq(seen..seen + read.len() as u64));
                    seen += read.len() as u64;
                });
                assert_eq!(unread, 0);
            }
            assert_eq!(seen, words.len() as u64, "{size}");
        }
    }
}
