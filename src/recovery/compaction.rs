//! Recovery steps for pools of cuguard: release their idle memory, and merge their half-empty pages.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cuguard_pool::Stats;
use cuguard_registry::{PAGE, ResourceKind};
use cuguard_report::oom::PoolUse;

use crate::core::open_contexts::on_device;
use crate::core::pool_compaction::{self, compact};
use crate::core::{ContextState, Request, VirtualPool};

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
/// released any. `limit`: the limit of a pool refused the allocation, so that only memory of such a pool helps.
/// `wait_at_most`: for work on the device.
pub(super) fn release(
    state: &ContextState,
    limit: Option<u64>,
    bytes: u64,
    wait_at_most: Duration,
    enough: &mut dyn FnMut() -> bool,
) -> bool {
    let begin = Instant::now();
    let mut pools = pools(state);
    pools.retain(|(_, pool)| limit.is_none_or(|limit| pool.settings().limit == limit));
    let mut any = false;
    for other in on_device(state.device) {
        // Pools without a guard count against no limit but the device's.
        if limit.is_none()
            && let Some(_inside) = other.try_enter()
        {
            any |= other.pools_of_cuguard().destroy_orphans();
        }
    }
    for (owner, pool) in &pools {
        if let Some(_inside) = owner.try_enter() {
            any |= pool.trim(0).is_ok_and(|released| released != 0);
        }
    }
    // Another thread may have freed meanwhile.
    if (any || limit.is_some()) && enough() {
        return true;
    }
    let wanted = match bytes {
        0 => u64::MAX,
        bytes => bytes.saturating_add(PAGE),
    };
    let mut compacted = false;
    for (owner, pool) in &pools {
        // It waits for the device: other contexts run on. Several guards may be of the same one.
        if owner.context != state.context {
            continue;
        }
        let before = pool.stats().held;
        // Errors of the compaction are ignored: the allocation reports out of memory itself. It may have released some.
        let _ = compact(owner, pool, wanted, begin.checked_add(wait_at_most));
        compacted |= pool.stats().held < before;
    }
    if compacted {
        enough();
    }
    any || compacted
}

/// Releases what is idle of the pools, or of those with this limit, unless the policy forbids it. Returns the contexts of
/// pools whose memory waits for a stream and could help.
pub(super) fn trim(
    state: &ContextState,
    request: &Request,
    limit: Option<u64>,
) -> Vec<Arc<ContextState>> {
    let mut waiting: Vec<Arc<ContextState>> = Vec::new();
    let may_release = state.oom_policy.compact;
    for (owner, pool) in pools(state) {
        // Memory that a pool keeps helps allocations of that pool alone.
        let is_own = request.kind == Some(ResourceKind::Pooled) && owner.number == state.number;
        if !may_release && !is_own {
            continue;
        }
        if limit.is_some_and(|limit| pool.settings().limit != limit) {
            continue;
        }
        let Some(_inside) = owner.try_enter() else {
            continue;
        };
        if may_release {
            // What the driver refuses to release is kept, and released when it is freed or trimmed later.
            let _ = pool.trim(0);
        }
        if pool.pending() != 0 && waiting.iter().all(|other| other.number != owner.number) {
            waiting.push(owner.clone());
        }
    }
    // Pools without a guard count against no limit but the device's.
    for owner in on_device(state.device) {
        if limit.is_some() || !owner.pools_of_cuguard().any() {
            continue;
        }
        let Some(_inside) = owner.try_enter() else {
            continue;
        };
        owner.pools_of_cuguard().destroy_orphans();
        let waits = !owner.pools_of_cuguard().orphans().is_empty();
        if waits && waiting.iter().all(|other| other.number != owner.number) {
            waiting.push(owner.clone());
        }
    }
    waiting
}

/// Waits for the contexts of pools, or of those with this limit, in which a stream ended where no event could be recorded:
/// until then nothing that was freed on it is reused. Returns whether any was waited for.
pub(super) fn wait_for_ended_streams(
    state: &ContextState,
    limit: Option<u64>,
    until: Option<Instant>,
) -> bool {
    // It stops operations: other contexts run on.
    let mut guards = on_device(state.device);
    guards.retain(|other| other.context == state.context);
    // One wait is for all guards of the context.
    let waits = guards.into_iter().find(|owner| {
        let Some(_inside) = owner.try_enter() else {
            return false;
        };
        let pools = owner.pools_of_cuguard();
        match limit {
            None => pools.has_unfinished_streams(),
            Some(limit) => pools
                .all()
                .iter()
                .any(|pool| pool.settings().limit == limit && pool.has_unfinished_streams()),
        }
    });
    waits.is_some_and(|owner| pool_compaction::wait_for_ended_streams(&owner, until))
}

/// What the pools hold, for the diagnosis.
pub(super) fn describe(state: &ContextState) -> Vec<PoolUse> {
    let describe = |owner: &ContextState, name: String, stats: Stats| {
        let whose = match owner.number == state.number {
            true => "this context".to_owned(),
            false => format!("context {}", owner.number),
        };
        PoolUse {
            name: format!("cuguard's {name} of {whose}"),
            reserved: stats.held,
            used: stats.used,
            threshold: None,
            of_cuguard: true,
        }
    };
    let mut all: Vec<PoolUse> = pools(state)
        .into_iter()
        .map(|(owner, pool)| describe(&owner, pool.name(), pool.stats()))
        .collect();
    for owner in on_device(state.device) {
        for (name, stats) in owner.pools_of_cuguard().orphans() {
            all.push(describe(&owner, format!("dropped {name}"), stats));
        }
    }
    all
}
