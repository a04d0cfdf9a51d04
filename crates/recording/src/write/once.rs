//! Which numbers are defined already: one bit each, read without a lock.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words of a page of bits.
const WORDS: usize = 1 << 10;

/// Numbers in a page.
const PAGE: usize = WORDS * 64;

/// Pages; larger numbers have no bit.
const PAGES: usize = 1 << 10;

type Page = Box<[AtomicU64]>;

/// A set of numbers that only grows.
#[derive(Debug)]
pub(super) struct Once {
    pages: Box<[OnceLock<Page>]>,
}

impl Default for Once {
    fn default() -> Self {
        Self {
            pages: (0..PAGES).map(|_| OnceLock::new()).collect(),
        }
    }
}

impl Once {
    /// Whether the number is in the set. Numbers of 2^26 and above never are.
    #[inline]
    pub(super) fn has(&self, number: u32) -> bool {
        let (number, bit) = (number as usize, number % 64);
        let page = self.pages.get(number / PAGE).and_then(OnceLock::get);
        page.is_some_and(|page| page[number % PAGE / 64].load(Ordering::Acquire) & (1 << bit) != 0)
    }

    /// Adds a number. The definition must be written before.
    pub(super) fn add(&self, number: u32) {
        let (number, bit) = (number as usize, number % 64);
        if let Some(page) = self.pages.get(number / PAGE) {
            let page = page.get_or_init(|| (0..WORDS).map(|_| AtomicU64::new(0)).collect());
            page[number % PAGE / 64].fetch_or(1 << bit, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Once;

    #[test]
    fn numbers_are_remembered() {
        let once = Once::default();
        for number in [0, 1, 63, 64, 65_535, 65_536, (1 << 26) - 1] {
            assert!(!once.has(number));
            once.add(number);
            assert!(once.has(number) && !once.has(number + 1));
        }
        once.add(u32::MAX);
        assert!(!once.has(u32::MAX));
    }
}
