//! The pools of a context.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use cuguard_driver::result::{self, CallError};
use cuguard_driver::sys::CUresult;
use cuguard_pool::{Pool, PoolError};
use cuguard_registry::{Key, Kind};
use cuguard_sync::process;

use super::context_state::ContextState;
use super::lock::lock;
use super::pool_driver::PoolDriver;
use super::pool_stream::StreamId;
use super::virtual_pool::VirtualPool;

/// Destroys a pool without live blocks, if no stream works on the memory any more. Does not wait.
pub(super) fn destroy_if_idle(pool: &Pool<PoolDriver>) -> bool {
    pool.trim(0).is_ok() && pool.stats().held == 0 && pool.destroy().is_ok()
}

/// Destroys a pool, for teardown. Memory that the driver does not release is lost, and recorded.
fn destroy(state: &ContextState, pool: &Pool<PoolDriver>) -> result::Result {
    let destroyed = match state.device_idle.load(Ordering::Acquire) {
        // What was refused is retried, once.
        true => pool.destroy().or_else(|_| pool.destroy()),
        // To unmap memory does not wait for work that uses it, as `cuMemFree` does.
        false => Err(PoolError::Driver {
            function: "wait_for_device",
            error: CallError {
                function: "cuCtxSynchronize",
                code: CUresult::NOT_READY,
            },
        }),
    };
    match destroyed {
        Err(PoolError::Driver { error, .. }) if pool.stats().held != 0 => {
            let key = Key::new(Kind::Physical, 0);
            state.record_failed_free(key, pool.stats().held, None, error);
            Err(error)
        }
        _ => Ok(()),
    }
}

/// The pools of a context, and the blocks of them that escaped.
#[derive(Default)]
pub(crate) struct PoolList {
    /// Whether there ever was one: most contexts have none.
    any: AtomicBool,
    pools: Mutex<Vec<Weak<VirtualPool>>>,
    /// The pool that all buffers of the context come from.
    of_context: OnceLock<Arc<VirtualPool>>,
    /// Pools without blocks whose streams still work, or that the driver refused to destroy.
    orphans: Mutex<Vec<Arc<Pool<PoolDriver>>>>,
    /// The pools of escaped blocks by address: a pool is not destroyed before they are freed.
    escaped: Mutex<HashMap<u64, Arc<VirtualPool>>>,
}

impl PoolList {
    pub(super) fn add(&self, pool: &Arc<VirtualPool>) {
        lock(&self.pools).push(Arc::downgrade(pool));
        self.any.store(true, Ordering::Release);
    }

    pub(super) fn remove(&self, pool: &VirtualPool) {
        let is_other = |other: &Weak<VirtualPool>| !std::ptr::eq(other.as_ptr(), pool);
        lock(&self.pools).retain(is_other);
    }

    /// Whether there ever was a pool.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// The pools that are alive.
    pub(crate) fn all(&self) -> Vec<Arc<VirtualPool>> {
        match self.any() {
            true => lock(&self.pools).iter().filter_map(Weak::upgrade).collect(),
            false => Vec::new(),
        }
    }

    /// The pool that all buffers of the context come from.
    #[inline]
    pub(crate) fn of_context(&self) -> Option<&Arc<VirtualPool>> {
        self.of_context.get()
    }

    /// Sets the pool that all buffers of the context come from, once.
    pub(crate) fn set_of_context(&self, pool: Arc<VirtualPool>) {
        let _ = self.of_context.set(pool);
    }

    /// Keeps the pool of a block that escapes. Returns a pool that was kept for the same address, to be dropped outside
    /// of the gate.
    pub(crate) fn escape(&self, address: u64, pool: &Arc<VirtualPool>) -> Option<Arc<VirtualPool>> {
        lock(&self.escaped).insert(address, pool.clone())
    }

    /// The pool of a block that escaped and is owned again.
    pub(crate) fn recapture(&self, address: u64) -> Option<Arc<VirtualPool>> {
        match self.any() {
            true => lock(&self.escaped).remove(&address),
            false => None,
        }
    }

    /// Whether a block escaped from a pool.
    pub(crate) fn is_escaped(&self, address: u64) -> bool {
        self.any() && lock(&self.escaped).contains_key(&address)
    }

    /// Keeps a pool that could not be destroyed.
    pub(super) fn add_orphan(&self, pool: Arc<Pool<PoolDriver>>) {
        lock(&self.orphans).push(pool);
    }

    /// Destroys the pools whose guards and blocks were dropped, if their streams have done the work that they had. Does not
    /// wait. The caller is inside the gate. Returns whether any was destroyed.
    pub(crate) fn destroy_orphans(&self) -> bool {
        if !self.any() {
            return false;
        }
        // They stay in the list meanwhile: a stream may end on another thread.
        let mut destroyed = lock(&self.orphans).clone();
        destroyed.retain(|pool| destroy_if_idle(pool));
        for pool in &destroyed {
            self.remove_orphan(pool);
        }
        !destroyed.is_empty()
    }

    /// A pool is destroyed.
    pub(super) fn remove_orphan(&self, pool: &Arc<Pool<PoolDriver>>) {
        lock(&self.orphans).retain(|other| !Arc::ptr_eq(other, pool));
    }

    /// A stream ends: pools without guards and blocks record their last event in it, too. The caller is inside the gate.
    pub(super) fn stream_ends_in_orphans(&self, stream: &StreamId) {
        if self.any() {
            let orphans = lock(&self.orphans).clone();
            for pool in orphans {
                // What was freed on it stays until teardown then.
                let _ = pool.stream_ends(stream);
            }
        }
    }

    /// Destroys all pools, for teardown: the device is idle, and the context is current. A pool of escaped memory stays
    /// until the process exits, and so do the blocks where teardown frees no leaks. What the driver refuses to release is
    /// recorded. Returns the first error.
    pub(super) fn destroy_all(&self, state: &ContextState) -> result::Result {
        let mut first = Ok(());
        for pool in std::mem::take(&mut *lock(&self.orphans)) {
            first = first.and(destroy(state, &pool));
        }
        let escaped = std::mem::take(&mut *lock(&self.escaped));
        for pool in self.all() {
            if process::is_exiting() {
                break;
            }
            let has_escaped = escaped.values().any(|other| Arc::ptr_eq(other, &pool));
            if has_escaped || !state.free_leaks && pool.has_blocks() {
                pool.abandon();
            } else {
                first = first.and(pool.destroy(|pool| destroy(state, pool)));
            }
        }
        // The context is closed: their drops do nothing.
        drop(escaped);
        first
    }
}
