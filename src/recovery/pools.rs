//! Trims the memory pools of a device, and reads how much they reserve without using it.

use cuguard_driver::result::pool::{self, Attribute};
use cuguard_driver::result::{device, graph};
use cuguard_driver::sys::CUmemoryPool;

use super::OPERATION;
use crate::core::ContextState;
use crate::core::open_contexts::on_device;
use cuguard_report::oom::{GraphMemoryUse, PoolUse};

/// Calls `each` for the device's default pool and the pools of its contexts, while they are alive. (A pool that other
/// code created and set for the device may be destroyed at any moment, so it is not inspected.)
fn for_each_pool(state: &ContextState, mut each: impl FnMut(CUmemoryPool, PoolUse)) {
    let Ok(_entered) = state.enter(OPERATION) else {
        return;
    };
    if let Ok(default) = device::default_mem_pool(state.device as i32)
        && let Some(pool) = inspect(default, "the device's pool".to_owned())
    {
        each(default, pool);
    }
    let mut contexts = on_device(state.device);
    // Those of this context first.
    contexts.sort_by_key(|other| (other.number != state.number, other.number));
    for other in contexts {
        let Ok(_entered) = other.enter(OPERATION) else {
            continue;
        };
        let whose = match other.number == state.number {
            true => "this context".to_owned(),
            false => format!("context {}", other.number),
        };
        let handles = other.pools.lock();
        for (number, (key, _)) in &handles.live {
            let name = match other.registry.label_of(*key) {
                Some(label) => format!("pool {number} {label:?} of {whose}"),
                None => format!("pool {number} of {whose}"),
            };
            let pool = CUmemoryPool(key.address as usize);
            if let Some(usage) = inspect(pool, name) {
                each(pool, usage);
            }
        }
    }
}

pub(super) fn pools(state: &ContextState) -> Vec<PoolUse> {
    let mut all = Vec::new();
    for_each_pool(state, |_, pool| all.push(pool));
    all
}

/// Whether other code has set a pool for the device that is not inspected here, into which streams may have freed.
pub(super) fn is_another_set(state: &ContextState) -> bool {
    let Ok(_entered) = state.enter(OPERATION) else {
        return false;
    };
    let set = device::mem_pool(state.device as i32);
    let mut is_known = set.is_err();
    for_each_pool(state, |pool, _| is_known |= set == Ok(pool));
    !is_known
}

/// The usage of a pool, which is alive.
fn inspect(pool: CUmemoryPool, name: String) -> Option<PoolUse> {
    // SAFETY: the device's default pool is always alive, others are on the list.
    let get = |attribute| unsafe { pool::attribute(pool, attribute) }.ok();
    Some(PoolUse {
        name,
        reserved: get(Attribute::Reserved)?,
        used: get(Attribute::Used)?,
        threshold: get(Attribute::ReleaseThreshold),
        of_cuguard: false,
    })
}

/// Makes pools return unused memory to the device. Returns false if none has any.
pub(super) fn trim(state: &ContextState) -> bool {
    let mut any = false;
    for_each_pool(state, |pool, usage| {
        if usage.unused() != 0 {
            any = true;
            // A failure shows in the diagnosis, as memory that the pool still reserves. SAFETY: as in `inspect`.
            let _ = unsafe { pool::trim_to(pool, 0) };
        }
    });
    any | trim_graphs(state)
}

/// What graphs have reserved of the device.
pub(super) fn graphs(state: &ContextState) -> GraphMemoryUse {
    let device = state.device as i32;
    let known = state.enter(OPERATION).ok().and_then(|_entered| {
        let reserved = graph::reserved_memory(device).ok()?;
        let used = graph::used_memory(device).ok()?;
        Some(GraphMemoryUse { reserved, used })
    });
    known.unwrap_or_default()
}

/// The same for the memory that the driver keeps for launches of graphs.
fn trim_graphs(state: &ContextState) -> bool {
    let device = state.device as i32;
    let Ok(_entered) = state.enter(OPERATION) else {
        return false;
    };
    let Ok(before @ 1..) = graph::reserved_memory(device) else {
        return false;
    };
    let trimmed = graph::trim_memory(device);
    trimmed.is_ok() && graph::reserved_memory(device).is_ok_and(|after| after < before)
}
