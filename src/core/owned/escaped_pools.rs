//! The driver's pools of memory that escaped: a pool must not be destroyed before its memory is freed.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::core::owned::ownership::DriverPoolState;
use crate::core::shared::context_state::ContextState;
use crate::core::shared::lock::lock;

/// By the number of the context and the address of the memory.
static ESCAPED: Mutex<BTreeMap<(u64, u64), Arc<DriverPoolState>>> = Mutex::new(BTreeMap::new());

/// Keeps the pool of memory that escapes. Returns what was kept for its address, to be dropped outside of the gate.
pub(in crate::core) fn keep(
    state: &ContextState,
    address: u64,
    pool: Arc<DriverPoolState>,
) -> Option<Arc<DriverPoolState>> {
    lock(&ESCAPED).insert((state.number, address), pool)
}

/// The pool of memory that is owned again.
pub(in crate::core) fn take(state: &ContextState, address: u64) -> Option<Arc<DriverPoolState>> {
    lock(&ESCAPED).remove(&(state.number, address))
}

/// Marks the pools that are kept, which are no leak.
pub(in crate::core) fn mark_all_of(state: &ContextState) {
    let escaped = lock(&ESCAPED);
    for (_, pool) in escaped.range((state.number, 0)..=(state.number, u64::MAX)) {
        state.registry.escape(pool.owned.key(), 0);
    }
}

/// Memory that escaped may be freed after teardown, so its pool stays until the process exits.
pub(in crate::core) fn keep_all_of(state: &ContextState) {
    let mut escaped = lock(&ESCAPED);
    let mut of_state = escaped.split_off(&(state.number, 0));
    let mut others = of_state.split_off(&(state.number + 1, 0));
    escaped.append(&mut others);
    drop(escaped);
    std::mem::forget(of_state);
}
