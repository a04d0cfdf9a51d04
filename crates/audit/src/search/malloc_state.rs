//! Where glibc's `malloc` keeps pointers of its own: in a `struct malloc_state`, one for each arena.
//!
//! ```text
//!   10 fast bins │ top │ last remainder │ 127 bins of two links
//! ```
//!
//! They lead to headers of chunks. Such an address is also one of the last 8 bytes of the block before, as of the last element of
//! an array: only the place of a pointer tells whose it is.
//!
//! The structure is found by its bins, which are the same in all versions: heads of doubly linked lists, each at a known distance,
//! the last of which is always empty.

use std::ops::Range;

use super::memory::{Memory, bytes_of};

/// Words from the top to the end of the bins.
const WORDS: usize = 256;
const BINS: usize = 127;
const FAST_BINS: usize = 10;
/// A thread that was stopped inside of `malloc` may have half changed a bin, or moved a chunk from one to another.
const INCONSISTENT: usize = 2;
const SMALLEST: u64 = 32;
/// Behind the bins: which of them have chunks, 16 bytes; links to other arenas, threads and sizes.
const BEHIND: u64 = 16 + 5 * 8;

/// The pointers of a `struct malloc_state`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct MallocState {
    /// Where the fast bins are. `None` in a version without them, or with others.
    pub(super) fast_bins: Option<u64>,
    /// Where the pointers are, all of them.
    pub(super) pointers: Range<u64>,
}

impl MallocState {
    /// The end of the structure.
    pub(super) fn end(&self) -> u64 {
        self.pointers.end + BEHIND
    }

    /// The structure in this memory, if there is one.
    pub(super) fn find(memory: &Memory, data: Range<u64>) -> Option<MallocState> {
        let words = words_of(memory, data.clone());
        let place = |index: usize| data.start + 8 * index as u64;
        // Backwards: with one bin allowed to be inconsistent, the top and the last remainder would pass for the first.
        let mut tops = (0..(words.len() + 1).checked_sub(WORDS)?).rev();
        let top = tops.find(|top| has_bins(memory, place(*top), &words[*top..][..WORDS]))?;
        let fast_bins = top.checked_sub(FAST_BINS);
        let fast_bins = fast_bins.filter(|at| are_fast_bins(memory, &words[*at..top]));
        Some(MallocState {
            fast_bins: fast_bins.map(place),
            pointers: place(fast_bins.unwrap_or(top))..place(top + WORDS),
        })
    }
}

/// Whether the bins lie behind the first two words, which are at this address.
fn has_bins(memory: &Memory, top: u64, words: &[u64]) -> bool {
    // A head counts as a chunk, whose links are behind a header: that of the first bin would be the top.
    let head = |bin: usize| top + 16 * bin as u64;
    let links = |bin: usize| (words[2 * bin + 2], words[2 * bin + 3]);
    let is_empty = |bin| links(bin) == (head(bin), head(bin));
    let is_linked = |bin| {
        let (next, previous) = links(bin);
        let word = |chunk: u64, offset: u64| {
            let aligned = chunk != 0 && chunk.is_multiple_of(16);
            let address = chunk.checked_add(offset).filter(|_| aligned)?;
            memory.words::<1>(address).map(|[word]| word)
        };
        word(next, 24) == Some(head(bin)) && word(previous, 16) == Some(head(bin))
    };
    let is_consistent = |bin: &usize| is_empty(*bin) || is_linked(*bin);
    is_empty(BINS - 1)
        && (0..BINS)
            .filter(|bin| !is_consistent(bin))
            .nth(INCONSISTENT)
            .is_none()
}

/// Whether each of the words is the beginning of a list of chunks of its size.
fn are_fast_bins(memory: &Memory, words: &[u64]) -> bool {
    words.iter().enumerate().all(|(bin, first)| {
        let size = || memory.words::<1>(first.wrapping_add(8));
        let expected = SMALLEST + 16 * bin as u64;
        *first == 0
            || (first.is_multiple_of(16) && size().is_some_and(|[head]| head & !7 == expected))
    })
}

/// The words in a range, up to the first that cannot be read.
pub(super) fn words_of(memory: &Memory, range: Range<u64>) -> Vec<u64> {
    let mut words = vec![0; (range.end.saturating_sub(range.start) / 8) as usize];
    let read = memory.read(range.start, bytes_of(&mut words)) / 8;
    words.truncate(read);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the tests have the fast bins, in words that have nothing else.
    const AT: usize = 30;
    const TOP: usize = AT + FAST_BINS;

    /// Memory with a `struct malloc_state`, all of whose bins are empty. Behind it there is room for chunks.
    fn state() -> Vec<u64> {
        // Not moved when it is returned.
        let mut words = vec![0; 600];
        for bin in 0..BINS {
            let head = address(&words, TOP + 2 * bin);
            words[TOP + 2 + 2 * bin] = head;
            words[TOP + 3 + 2 * bin] = head;
        }
        words
    }

    fn address(words: &[u64], index: usize) -> u64 {
        words.as_ptr().addr() as u64 + 8 * index as u64
    }

    /// The index of an aligned chunk behind the structure.
    fn chunk(words: &[u64], number: usize) -> usize {
        let index = TOP + WORDS + 10 + 8 * number;
        index + (address(words, index) % 16 / 8) as usize
    }

    /// Where the fast bins, the first pointer and the end of the pointers are.
    fn found(words: &[u64]) -> Option<(Option<usize>, usize, usize)> {
        let data = address(words, 0)..address(words, words.len());
        let state = MallocState::find(&Memory::open(), data)?;
        let index = |at: u64| ((at - address(words, 0)) / 8) as usize;
        let Range { start, end } = state.pointers;
        Some((state.fast_bins.map(index), index(start), index(end)))
    }

    #[test]
    fn the_state_is_found_by_its_bins() {
        let mut words = state();
        let all = Some((Some(AT), AT, TOP + WORDS));
        assert_eq!(found(&words), all);
        // A bin with two chunks.
        let head = address(&words, TOP + 2 * 40);
        let [first, second] = [0, 1].map(|number| chunk(&words, number));
        words[TOP + 2 + 2 * 40] = address(&words, first);
        words[TOP + 3 + 2 * 40] = address(&words, second);
        words[first + 3] = head;
        words[second + 2] = head;
        words[TOP] = address(&words, 500);
        assert_eq!(found(&words), all);
        // Chunks that are half unlinked; then too many.
        for (bins, expected) in [(1, all), (2, all), (3, None)] {
            words[TOP + 2 + 2 * (50 + bins)] = 0;
            assert_eq!(found(&words), expected, "{bins} bins");
        }
        assert_eq!(found(&[0; 600]), None);
        assert_eq!(found(&[0; 10]), None);
    }

    #[test]
    fn fast_bins_have_chunks_of_their_sizes() {
        let mut words = state();
        let at = chunk(&words, 0);
        words[AT + 3] = address(&words, at);
        words[at + 1] = (SMALLEST + 16 * 3) | 1;
        assert_eq!(found(&words), Some((Some(AT), AT, TOP + WORDS)));
        // Something else of the C library.
        words[at + 1] = 0x51 + 16;
        assert_eq!(found(&words), Some((None, TOP, TOP + WORDS)));
    }
}
