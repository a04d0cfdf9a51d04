//! What a page must show, computed from the run in the plainest way.

use std::collections::{BTreeMap, BTreeSet};

use cuguard_view::{Allocation, CallSite, FOREVER, Run};

pub const PAGE: u64 = 2 << 20;

pub fn on_device(run: &Run, allocation: &Allocation) -> bool {
    run.kinds[usize::from(allocation.kind)].on_device
}

/// Device memory that is alive at a time.
pub fn alive(run: &Run, time: u64) -> Vec<&Allocation> {
    let at = |allocation: &&Allocation| {
        on_device(run, allocation) && allocation.start <= time && time < allocation.end
    };
    run.allocations.iter().filter(at).collect()
}

pub fn bytes(allocations: &[&Allocation]) -> u64 {
    allocations.iter().map(|allocation| allocation.bytes).sum()
}

/// The time and bytes of the peak: the use after each allocation, summed up anew.
pub fn peak(run: &Run) -> (u64, u64) {
    let mut peak = (0, 0);
    for allocation in &run.allocations {
        let now = bytes(&alive(run, allocation.start));
        if now > peak.1 {
            peak = (allocation.start, now);
        }
    }
    peak
}

/// The first call site with the same frames of the program: those that differ inside of libraries alone are one.
pub fn call_site(run: &Run, allocation: &Allocation) -> u32 {
    let shown = |site: &CallSite| {
        let own: Vec<_> = site.frames.iter().filter(|frame| frame.in_app).collect();
        let all = site.frames.iter().collect();
        let frames: Vec<_> = if own.is_empty() { all } else { own };
        format!("{} {frames:?}", site.type_name)
    };
    let own = shown(&run.sites[allocation.site as usize]);
    let mut sites = run.sites.iter();
    sites.position(|site| shown(site) == own).expect("its own") as u32
}

/// Bytes and count by a property.
pub fn groups<K: Ord>(
    allocations: &[&Allocation],
    key: impl Fn(&Allocation) -> K,
) -> BTreeMap<K, (u64, u64)> {
    let mut groups = BTreeMap::new();
    for allocation in allocations {
        let sum = groups.entry(key(allocation)).or_insert((0, 0));
        sum.0 += allocation.bytes;
        sum.1 += 1;
    }
    groups
}

pub fn never_freed(run: &Run) -> Vec<&Allocation> {
    run.allocations
        .iter()
        .filter(|allocation| allocation.end == FOREVER || allocation.leaked)
        .collect()
}

/// Whether it has pages of its own, as blocks of pools have not.
pub fn is_paged(run: &Run, allocation: &Allocation) -> bool {
    on_device(run, allocation) && run.kinds[usize::from(allocation.kind)].name != "pooled"
}

/// The pages that allocations touch.
pub fn pages<'a>(
    run: &Run,
    allocations: impl IntoIterator<Item = &'a Allocation>,
) -> BTreeSet<u64> {
    let paged = allocations
        .into_iter()
        .filter(|allocation| is_paged(run, allocation) && allocation.bytes > 0);
    paged
        .flat_map(|allocation| {
            allocation.address / PAGE..=(allocation.address + allocation.bytes - 1) / PAGE
        })
        .collect()
}

/// What is not used of the pages in use at a time.
pub fn wasted(run: &Run, time: u64) -> u64 {
    let mut alive = alive(run, time);
    alive.retain(|allocation| is_paged(run, allocation));
    let pages = pages(run, alive.iter().copied());
    pages.len() as u64 * PAGE - bytes(&alive)
}

/// The longest row of neighbouring pages.
pub fn longest_row(pages: &BTreeSet<u64>) -> u64 {
    let (mut longest, mut length, mut before) = (0, 0, None);
    for page in pages {
        length = if before == Some(page - 1) {
            length + 1
        } else {
            1
        };
        longest = longest.max(length);
        before = Some(*page);
    }
    longest
}
