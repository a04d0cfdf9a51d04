//! Advice about managed memory, page by page: what `cuMemAdvise` and prefetches set, and range
//! attributes report.

use std::collections::{BTreeMap, BTreeSet};

use cuguard_sys::{CUmemLocation, mem_location_type};

use super::pages::host_page;

/// The device that range attributes report where there is none.
pub(crate) const NO_DEVICE: i32 = -2;
/// The device that stands for the host.
pub(crate) const CPU: i32 = -1;

/// No location, as range attributes report it.
pub(crate) const NOWHERE: CUmemLocation = CUmemLocation {
    type_: mem_location_type::NONE,
    id: NO_DEVICE,
};

/// The advice about one page.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PageAdvice {
    pub(crate) read_mostly: bool,
    pub(crate) preferred: CUmemLocation,
    /// Devices, and [`CPU`].
    pub(crate) accessed_by: BTreeSet<i32>,
    pub(crate) last_prefetch: CUmemLocation,
}

impl Default for PageAdvice {
    fn default() -> Self {
        Self {
            read_mostly: false,
            preferred: NOWHERE,
            accessed_by: BTreeSet::new(),
            last_prefetch: NOWHERE,
        }
    }
}

/// The advice about the pages of an allocation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Advice {
    /// What holds from an address to the next one. Pages before the first have `initial`.
    changes: BTreeMap<u64, PageAdvice>,
    initial: PageAdvice,
}

/// The pages that a range touches.
fn pages(address: u64, count: u64) -> (u64, u64) {
    let page = host_page() as u64;
    let end = address.saturating_add(count);
    let last = end.checked_next_multiple_of(page).unwrap_or(u64::MAX);
    (address - address % page, last)
}

impl Advice {
    /// All pages have this advice.
    pub(crate) fn new(initial: PageAdvice) -> Self {
        Self {
            changes: BTreeMap::new(),
            initial,
        }
    }

    fn at(&self, address: u64) -> &PageAdvice {
        let change = self.changes.range(..=address).next_back();
        change.map_or(&self.initial, |(_, advice)| advice)
    }

    /// The different advice about the pages that a range touches. At least one.
    pub(crate) fn within(&self, address: u64, count: u64) -> impl Iterator<Item = &PageAdvice> {
        let (start, end) = pages(address, count);
        let after = self
            .changes
            .range(start.saturating_add(1)..end.max(start.saturating_add(1)));
        std::iter::once(self.at(start)).chain(after.map(|(_, advice)| advice))
    }

    /// Changes the advice about all pages that a range touches.
    pub(crate) fn update(&mut self, address: u64, count: u64, change: impl Fn(&mut PageAdvice)) {
        let (start, end) = pages(address, count);
        for border in [start, end] {
            let advice = self.at(border).clone();
            self.changes.entry(border).or_insert(advice);
        }
        for (_, advice) in self.changes.range_mut(start..end) {
            change(advice);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_is_for_the_pages_that_a_range_touches() {
        let page = host_page() as u64;
        let mut advice = Advice::default();
        let read_mostly = |advice: &Advice, at, count| {
            let pages = advice.within(at, count);
            pages.map(|advice| advice.read_mostly).collect::<Vec<_>>()
        };
        assert_eq!(read_mostly(&advice, 0, 100), [false]);
        advice.update(2 * page + 5, 10, |advice| advice.read_mostly = true);
        assert_eq!(read_mostly(&advice, 2 * page, page), [true]);
        assert_eq!(read_mostly(&advice, 3 * page, 1), [false]);
        assert_eq!(read_mostly(&advice, 2 * page - 1, 1), [false]);
        assert_eq!(read_mostly(&advice, 0, 9 * page), [false, true, false]);
        advice.update(0, 9 * page, |advice| advice.read_mostly = false);
        assert!(!read_mostly(&advice, 0, 9 * page).contains(&true));
    }
}
