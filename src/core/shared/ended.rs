//! What the process has counted beyond its open contexts, for the figures of the running process: counters must not go back
//! when a context ends.

use std::collections::BTreeMap;
use std::sync::Mutex;

use cuguard_registry::{Refusals, ResourceKind, Totals};

use crate::core::shared::context_state::ContextState;
use crate::core::shared::lock::lock;

/// The allocations that failed, by device.
pub(crate) static REFUSALS: Refusals = Refusals::new();

/// What the contexts of a device that ended have counted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ended {
    /// How many were allocated, by kind. All of them have ended.
    pub(crate) allocated: [u64; ResourceKind::COUNT],
    /// The highest peaks by kind, of a context.
    pub(crate) peaks: [u64; ResourceKind::COUNT],
}

static ENDED: Mutex<BTreeMap<u32, Ended>> = Mutex::new(BTreeMap::new());

/// Adds a context that is removed from the open ones.
pub(crate) fn add(state: &ContextState) {
    let mut ended = lock(&ENDED);
    let of_device = ended.entry(state.device).or_default();
    for kind in ResourceKind::ALL {
        let Totals {
            allocated,
            peak_bytes,
            ..
        } = state.registry.totals(*kind);
        of_device.allocated[kind.index()] += allocated;
        let peak = &mut of_device.peaks[kind.index()];
        *peak = (*peak).max(peak_bytes);
    }
}

/// All devices that had a context which ended.
pub(crate) fn all() -> BTreeMap<u32, Ended> {
    lock(&ENDED).clone()
}
