//! The memory pools of a device, for the moment in which memory runs out: what they have and do not
//! use.

use cuguard_driver::result::device;
use cuguard_driver::result::pool::{self, Attribute};
use cuguard_driver::sys::CUmemoryPool;

use super::OPERATION;
use crate::core::ContextState;
use crate::core::open_contexts::on_device;
use cuguard_report::oom::PoolUse;

/// Calls `each` for the device's own pool and those of its contexts, while they are there. (A pool that
/// other code made and set as the device's may go at any moment, so nobody asks it.)
fn for_each_pool(state: &ContextState, mut each: impl FnMut(CUmemoryPool, PoolUse)) {
    let Ok(_entered) = state.enter(OPERATION) else {
        return;
    };
    if let Ok(default) = device::default_mem_pool(state.device as i32)
        && let Some(pool) = look_at(default, "the device's pool".to_owned())
    {
        each(default, pool);
    }
    let mut contexts = on_device(state.device);
    // The own ones first.
    contexts.sort_by_key(|other| (other.number != state.number, other.number));
    for other in contexts {
        let Ok(_entered) = other.enter(OPERATION) else {
            continue;
        };
        let whose = match other.number == state.number {
            true => "this context".to_owned(),
            false => format!("context {}", other.number),
        };
        let entries = other.pools.lock();
        for (number, (key, _)) in &entries.all {
            let name = match other.registry.label_of(*key) {
                Some(label) => format!("pool {number} {label:?} of {whose}"),
                None => format!("pool {number} of {whose}"),
            };
            let pool = CUmemoryPool(key.address as usize);
            if let Some(looked) = look_at(pool, name) {
                each(pool, looked);
            }
        }
    }
}

pub(super) fn pools(state: &ContextState) -> Vec<PoolUse> {
    let mut all = Vec::new();
    for_each_pool(state, |_, pool| all.push(pool));
    all
}

/// Whether streams may have freed into a pool that is not looked at: other code has set one for the
/// device.
pub(super) fn is_another_set(state: &ContextState) -> bool {
    let Ok(_entered) = state.enter(OPERATION) else {
        return false;
    };
    let set = device::mem_pool(state.device as i32);
    let mut is_known = set.is_err();
    for_each_pool(state, |pool, _| is_known |= set == Ok(pool));
    !is_known
}

/// The pool is alive.
fn look_at(pool: CUmemoryPool, name: String) -> Option<PoolUse> {
    // SAFETY: the device's own pool is always there, others are on the list.
    let ask = |attribute| unsafe { pool::attribute(pool, attribute) }.ok();
    let reserved = ask(Attribute::Reserved)?;
    let mut pool = PoolUse::new(name, reserved, ask(Attribute::Used)?);
    pool.threshold = ask(Attribute::ReleaseThreshold);
    Some(pool)
}

/// Makes pools give back what they do not use. False where none has anything.
pub(super) fn trim(state: &ContextState) -> bool {
    let mut any = false;
    for_each_pool(state, |pool, looked| {
        if looked.unused() != 0 {
            any = true;
            // What it refuses it keeps, and the report shows that. SAFETY: as in `look_at`.
            let _ = unsafe { pool::trim_to(pool, 0) };
        }
    });
    any
}
