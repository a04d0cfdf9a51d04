//! Pools of cuguard: they release idle memory, and merge half-empty pages.

use std::sync::Arc;

use cuguard_report::oom::PoolUse;

use crate::core::open_contexts::on_device;
use crate::core::pool_compaction::compact;
use crate::core::{ContextState, VirtualPool};

/// The size of a page, in which memory is released.
const PAGE: u64 = 2 << 20;

/// The pools of the device's contexts with their contexts, those of this context first.
fn pools(state: &ContextState) -> Vec<(Arc<ContextState>, Arc<VirtualPool>)> {
    let mut contexts = on_device(state.device);
    contexts.sort_by_key(|other| (other.number != state.number, other.number));
    let of = |state: Arc<ContextState>| {
        let pools = state.pools_of_cuguard().all();
        pools.into_iter().map(move |pool| (state.clone(), pool))
    };
    contexts.into_iter().flat_map(of).collect()
}

/// Whether the device has, or had, any pool of cuguard.
pub(super) fn any(state: &ContextState) -> bool {
    let contexts = on_device(state.device);
    contexts.iter().any(|state| state.pools_of_cuguard().any())
}

/// Makes pools release memory: first what is idle, then, if that is not `enough`, what merging gains. Returns false if none
/// released any. `is_limit`: the limit of a pool refused the allocation.
pub(super) fn release(
    state: &ContextState,
    is_limit: bool,
    bytes: u64,
    enough: &mut dyn FnMut() -> bool,
) -> bool {
    let pools = pools(state);
    let mut any = false;
    for other in on_device(state.device) {
        if let Some(_inside) = other.try_enter() {
            any |= other.pools_of_cuguard().destroy_orphans();
        }
    }
    for (owner, pool) in &pools {
        if let Some(_inside) = owner.try_enter() {
            any |= pool.trim(0).is_ok_and(|released| released != 0);
        }
    }
    // Another thread may have freed meanwhile.
    if (any || is_limit) && enough() {
        return true;
    }
    let wanted = match bytes {
        0 => u64::MAX,
        bytes => bytes.saturating_add(PAGE),
    };
    let mut compacted = false;
    for (owner, pool) in &pools {
        // It waits for the device: other contexts run on.
        if owner.number != state.number {
            continue;
        }
        // Why not, is no error of the allocation, which fails for want of memory.
        let gained = compact(owner, pool, wanted);
        compacted |= gained.is_ok_and(|gained| gained.released != 0);
    }
    if compacted {
        enough();
    }
    any || compacted
}

/// What the pools hold, for the diagnosis.
pub(super) fn describe(state: &ContextState) -> Vec<PoolUse> {
    let of = |(owner, pool): (Arc<ContextState>, Arc<VirtualPool>)| {
        let stats = pool.stats();
        let whose = match owner.number == state.number {
            true => "this context".to_owned(),
            false => format!("context {}", owner.number),
        };
        PoolUse {
            name: format!("cuguard's {} of {whose}", pool.name()),
            reserved: stats.held,
            used: stats.used,
            threshold: None,
            of_cuguard: true,
        }
    };
    pools(state).into_iter().map(of).collect()
}
