//! Memory that graphs allocate.
//!
//! A memory node of a graph allocates when the executable graph is launched. Memory that no node of the same graph frees
//! is alive from the launch until the program frees it, or launches a graph that does.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

use cuguard_registry::{Owner, ResourceKind};

use super::{contexts, forget, insert};

/// What a launch changes.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// What it allocates: addresses and sizes.
    pub(crate) allocations: Vec<(u64, u64)>,
    /// What it frees.
    pub(crate) frees: Vec<u64>,
}

impl Plan {
    /// Removes what is allocated and freed in one launch.
    pub(crate) fn balance(&mut self) {
        let allocated = self.allocations.clone();
        self.allocations
            .retain(|(address, _)| !self.frees.contains(address));
        let is_own = |address: &u64| allocated.iter().any(|(own, _)| own == address);
        self.frees.retain(|address| !is_own(address));
    }

    fn is_empty(&self) -> bool {
        self.allocations.is_empty() && self.frees.is_empty()
    }
}

/// Whether any graph has a memory node. Mostly not, and then no graph is looked through.
static ANY_NODE: AtomicBool = AtomicBool::new(false);
/// Whether there is a plan.
static ANY_PLAN: AtomicBool = AtomicBool::new(false);
/// The executable graphs that change what is allocated.
static PLANS: Mutex<Option<HashMap<u64, Arc<Plan>>>> = Mutex::new(None);
/// How many captures are under way. A stream that is destroyed while it captures is counted for ever, which costs time
/// and nothing else.
static CAPTURES: AtomicU64 = AtomicU64::new(0);

fn lock() -> MutexGuard<'static, Option<HashMap<u64, Arc<Plan>>>> {
    cuguard_sync::lock(&PLANS)
}

/// Notes that a graph got a memory node.
pub(crate) fn note_memory_node() {
    ANY_NODE.store(true, Relaxed);
}

/// Whether a graph may have memory nodes.
pub(crate) fn any_memory_node() -> bool {
    ANY_NODE.load(Relaxed)
}

/// A capture began.
pub(crate) fn capture_began() {
    CAPTURES.fetch_add(1, Relaxed);
}

/// A capture ended.
pub(crate) fn capture_ended() {
    let less = |captures: u64| captures.checked_sub(1);
    let _ = CAPTURES.fetch_update(Relaxed, Relaxed, less);
}

/// Whether a stream may be capturing.
#[inline]
pub(crate) fn any_capture() -> bool {
    CAPTURES.load(Relaxed) != 0
}

/// Keeps what launches of an executable graph change.
pub(crate) fn instantiated(exec: u64, mut plan: Plan) {
    plan.balance();
    if !plan.is_empty() {
        lock().get_or_insert_default().insert(exec, Arc::new(plan));
        ANY_PLAN.store(true, Relaxed);
    }
}

/// What launches of an executable graph change.
pub(crate) fn plan_of(exec: u64) -> Option<Arc<Plan>> {
    match ANY_PLAN.load(Relaxed) {
        true => lock().as_ref()?.get(&exec).cloned(),
        false => None,
    }
}

/// Before an executable graph is destroyed.
pub(crate) fn begin_destroy(exec: u64) -> Option<Arc<Plan>> {
    match ANY_PLAN.load(Relaxed) {
        true => lock().as_mut()?.remove(&exec),
        false => None,
    }
}

/// The driver refused to destroy it.
#[cold]
pub(crate) fn destroy_failed(exec: u64, plan: Option<Arc<Plan>>) {
    if let Some(plan) = plan {
        lock().get_or_insert_default().insert(exec, plan);
    }
}

/// Records a launch.
pub(crate) fn launched(plan: &Plan, stream: u64) {
    for address in &plan.frees {
        forget(ResourceKind::GraphMemory, *address);
    }
    for (address, bytes) in &plan.allocations {
        // A graph that frees its memory at the next launch has it under the same address.
        forget(ResourceKind::GraphMemory, *address);
        let owner = Owner::default().on(contexts::device_of_any_memory(*address));
        insert(ResourceKind::GraphMemory, *address, *bytes, stream, owner);
    }
}

#[cfg(test)]
mod tests {
    use super::Plan;

    #[test]
    fn what_one_launch_allocates_and_frees_does_not_remain() {
        let mut plan = Plan {
            allocations: vec![(0x1000, 16), (0x2000, 32)],
            frees: vec![0x1000, 0x3000],
        };
        plan.balance();
        assert_eq!(plan.allocations, [(0x2000, 32)]);
        assert_eq!(plan.frees, [0x3000]);
    }
}
