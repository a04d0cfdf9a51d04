//! What the process has counted beyond its open contexts, for the figures of the running process: neither counters nor peaks
//! must go back when a context ends.

use std::collections::BTreeMap;
use std::sync::Mutex;

use cuguard_registry::{Refusals, ResourceKind};

use crate::core::shared::context_state::ContextState;
use crate::core::shared::lock::lock;

/// A figure of each kind, by [`ResourceKind::index`].
pub(crate) type ByKind = [u64; ResourceKind::COUNT];

/// The allocations that failed, by device.
pub(crate) static REFUSALS: Refusals = Refusals::new();

/// How many were allocated in contexts that ended, by device.
static ALLOCATED: Mutex<BTreeMap<u32, ByKind>> = Mutex::new(BTreeMap::new());

/// By device, the highest sum of the peaks of contexts that were open at one time.
static PEAKS: Mutex<BTreeMap<u32, ByKind>> = Mutex::new(BTreeMap::new());

/// Counts a context that is removed from the open ones; `others` are those that stay open.
pub(in crate::core) fn add<'a>(
    state: &'a ContextState,
    others: impl Iterator<Item = &'a ContextState>,
) {
    // Only the peaks of the others, which cost a load each: a program may have hundreds of contexts, and end all of them.
    let mut peaks = ByKind::default();
    for other in others.filter(|other| other.device == state.device) {
        for kind in ResourceKind::ALL {
            peaks[kind.index()] += other.registry.peak_bytes(*kind);
        }
    }
    let totals = ResourceKind::ALL.iter();
    let totals: Vec<_> = totals
        .map(|kind| (kind.index(), state.registry.totals(*kind)))
        .collect();
    for (index, totals) in &totals {
        peaks[*index] += totals.peak_bytes;
    }
    raise_peaks(state.device, &mut peaks);
    let mut ended = lock(&ALLOCATED);
    let allocated = ended.entry(state.device).or_default();
    for (index, totals) in &totals {
        allocated[*index] += totals.allocated;
    }
}

/// How many were allocated in contexts that ended, by device. They count as freed: nothing reports a later free of what escaped,
/// or of what teardown could not free, so counting these as alive would show a leak for ever.
pub(in crate::core) fn allocated() -> BTreeMap<u32, ByKind> {
    lock(&ALLOCATED).clone()
}

/// Raises the sums of the peaks of a device's open contexts to the highest that were ever seen. A sum falls only when a context
/// ends, and [`add`] has seen it then: so what this returns is the same whether or not it is called in between.
pub(crate) fn raise_peaks(device: u32, peaks: &mut ByKind) {
    let mut all = lock(&PEAKS);
    let highest = all.entry(device).or_default();
    for (highest, peak) in highest.iter_mut().zip(peaks) {
        *highest = (*highest).max(*peak);
        *peak = *highest;
    }
}
