//! The driver's pools of memory that escaped: a pool must not be destroyed before its memory is freed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::context_state::ContextState;
use super::lock::lock;
use super::ownership::PoolState;

/// By the number of the context and the address of the memory.
static ESCAPED: Mutex<BTreeMap<(u64, u64), Arc<PoolState>>> = Mutex::new(BTreeMap::new());

/// Keeps the pool of memory that escapes. Returns what was kept for its address, to be dropped outside of the gate.
pub(super) fn keep(
    state: &ContextState,
    address: u64,
    pool: Arc<PoolState>,
) -> Option<Arc<PoolState>> {
    lock(&ESCAPED).insert((state.number, address), pool)
}

/// The pool of memory that is owned again.
pub(super) fn take(state: &ContextState, address: u64) -> Option<Arc<PoolState>> {
    lock(&ESCAPED).remove(&(state.number, address))
}

/// Marks the pools that are kept, which are no leak.
pub(super) fn mark_all_of(state: &ContextState) {
    let escaped = lock(&ESCAPED);
    for (_, pool) in escaped.range((state.number, 0)..=(state.number, u64::MAX)) {
        state.registry.escape(pool.owned.key(), 0);
    }
}

/// Memory that escaped may be freed after teardown, so its pool stays until the process exits.
pub(super) fn keep_all_of(state: &ContextState) {
    let mut escaped = lock(&ESCAPED);
    let mut of_state = escaped.split_off(&(state.number, 0));
    let mut others = of_state.split_off(&(state.number + 1, 0));
    escaped.append(&mut others);
    drop(escaped);
    std::mem::forget(of_state);
}
