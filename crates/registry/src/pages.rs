//! How device memory lies in the driver's pages, and which call sites keep which pages.

use std::collections::{HashMap, HashSet};

use crate::hash::BuildMixHasher;

/// The driver allocates device memory in pages of this size. Smaller blocks share pages, larger ones
/// take whole pages.
pub const PAGE: u64 = 2 << 20;

/// The pages that a block lies in. A small block may cross the end of a page.
pub(crate) fn pages_of(address: u64, bytes: u64) -> std::ops::RangeInclusive<u64> {
    address / PAGE..=address.saturating_add(bytes.max(1) - 1) / PAGE
}

/// How the device memory of a context lies in the driver's pages of 2 MiB. A page returns to the device
/// when every block in it is free.
///
/// ```
/// let pages = cuguard::oom::PageUse::default();
/// assert_eq!((pages.taken(), pages.pinned(), pages.rounding()), (0, 0, 0));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageUse {
    /// The bytes of blocks of 2 MiB and more, which have pages of their own.
    pub large_bytes: u64,
    /// Their pages.
    pub large_pages: u64,
    /// The bytes of smaller blocks, which share pages.
    pub small_bytes: u64,
    /// The pages with at least one small block.
    pub small_pages: u64,
    /// The bytes that other contexts of this process have in these pages. Small blocks lie side by side
    /// where several of them hold the same driver context.
    pub foreign_bytes: u64,
    /// The bytes of small blocks in pages that are counted for another context. They are in no other
    /// figure here.
    pub elsewhere_bytes: u64,
}

impl PageUse {
    /// Accounts for pages that are shared with other contexts.
    pub fn share(&mut self, shared: SharedPages) {
        self.small_pages = self.small_pages.min(shared.pages);
        self.small_bytes = self.small_bytes.saturating_sub(shared.elsewhere_bytes);
        (self.foreign_bytes, self.elsewhere_bytes) = (shared.foreign_bytes, shared.elsewhere_bytes);
    }

    /// The bytes of all pages together, less what other contexts have in them.
    ///
    /// ```
    /// use cuguard::oom::PageUse;
    ///
    /// let pages = PageUse { small_bytes: 1, small_pages: 1, ..PageUse::default() };
    /// assert_eq!(pages.taken(), 2 << 20);
    /// ```
    #[must_use]
    pub const fn taken(&self) -> u64 {
        self.large_pages
            .saturating_add(self.small_pages)
            .saturating_mul(PAGE)
            .saturating_sub(self.foreign_bytes)
    }

    /// The bytes of whole pages that would be free if small blocks were packed. As they lie, only other
    /// small blocks can use them.
    ///
    /// ```
    /// use cuguard::oom::PageUse;
    ///
    /// let pages = PageUse { small_bytes: 3 << 20, small_pages: 3, ..PageUse::default() };
    /// assert_eq!(pages.pinned(), 2 << 20);
    /// ```
    #[must_use]
    pub const fn pinned(&self) -> u64 {
        let needed = self
            .small_bytes
            .saturating_add(self.foreign_bytes)
            .div_ceil(PAGE);
        self.small_pages.saturating_sub(needed).saturating_mul(PAGE)
    }

    /// The bytes that are lost because large blocks take whole pages.
    ///
    /// ```
    /// use cuguard::oom::PageUse;
    ///
    /// let pages = PageUse { large_bytes: 3 << 20, large_pages: 2, ..PageUse::default() };
    /// assert_eq!(pages.rounding(), 1 << 20);
    /// ```
    #[must_use]
    pub const fn rounding(&self) -> u64 {
        self.large_pages
            .saturating_mul(PAGE)
            .saturating_sub(self.large_bytes)
    }
}

/// What one context has in pages with others. A page counts for the first context with a block in it,
/// in the order in which they are given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedPages {
    /// How many pages with small blocks count for it.
    pub pages: u64,
    /// The bytes of others in these.
    pub foreign_bytes: u64,
    /// Its own bytes in pages that count for others.
    pub elsewhere_bytes: u64,
}

/// Which call sites have small blocks in which page: a bit for each of the first call sites, the others
/// in a set.
#[derive(Default)]
pub(crate) struct SmallPages {
    runs: Vec<[u64; RUN]>,
    others: HashSet<(u64, usize), BuildMixHasher>,
    /// The run of page `n` is at `n / RUN`.
    run_of: HashMap<u64, usize, BuildMixHasher>,
    /// The run of the block before.
    last: Option<(u64, usize)>,
}

/// Consecutive pages that are looked up at once: 1 GiB of addresses.
const RUN: usize = 512;

/// How many call sites have a bit of their own. The highest bit stands for all others.
const BITS: usize = 63;

impl SmallPages {
    /// Records a small block of a call site in a page. Returns whether it is the first block there, and
    /// the first of the call site.
    #[inline]
    pub(crate) fn insert(&mut self, page: u64, site: usize) -> (bool, bool) {
        let sites = self.sites_in(page);
        let bit = 1 << site.min(BITS);
        let (is_first, is_new) = (*sites == 0, *sites & bit == 0);
        *sites |= bit;
        if site < BITS {
            (is_first, is_new)
        } else {
            (is_first, self.others.insert((page, site)))
        }
    }

    #[inline]
    fn sites_in(&mut self, page: u64) -> &mut u64 {
        let (number, within) = (page / RUN as u64, page as usize % RUN);
        let run = match self.last {
            Some((last, run)) if last == number => run,
            _ => self.look_up(number),
        };
        &mut self.runs[run][within]
    }

    #[inline(never)]
    fn look_up(&mut self, number: u64) -> usize {
        let run = *self.run_of.entry(number).or_insert_with(|| {
            self.runs.push([0; RUN]);
            self.runs.len() - 1
        });
        self.last = Some((number, run));
        run
    }
}
