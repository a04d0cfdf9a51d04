//! The pools of a context.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use cuguard_driver::result::{self, CallError};
use cuguard_driver::sys::CUresult;
use cuguard_pool::{Pool, PoolError, Stats};
use cuguard_registry::{Key, PAGE, PoolUsage, ResourceKind};
use cuguard_sync::process;

use crate::core::pools::driver::{PoolDriver, note_if_broken};
use crate::core::pools::stream_id::StreamId;
use crate::core::pools::virtual_pool::VirtualPool;
use crate::core::shared::context_state::ContextState;
use crate::core::shared::lock::{lock, try_lock, within_patience};

/// Destroys a pool without live blocks, if no stream works on the memory any more. Does not wait.
fn destroy_if_idle(pool: &Pool<PoolDriver>) -> bool {
    pool.trim(0).is_ok() && pool.stats().held == 0 && pool.destroy().is_ok()
}

/// Waits a while for work of destroyed streams on freed blocks; the streams that exist have been waited for. Returns whether
/// no work can use the pool any more.
fn becomes_idle(pool: &Pool<PoolDriver>) -> bool {
    // Teardown may have destroyed them: no event can be recorded in them.
    pool.open_streams_are_idle();
    (0..1000).any(|_| {
        let is_idle = !pool.has_pending();
        if !is_idle {
            std::thread::sleep(Duration::from_millis(1));
        }
        is_idle
    })
}

/// Destroys a pool, for teardown. Memory that the driver does not release is lost, and recorded.
fn destroy(state: &ContextState, pool: &Pool<PoolDriver>) -> result::Result {
    let is_idle = state.device_idle.load(Ordering::Acquire)
        && (!state.only_streams_idle.load(Ordering::Acquire) || becomes_idle(pool));
    let destroyed = match is_idle {
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
    destroyed.map_err(|error| {
        let error = match error {
            PoolError::Driver { error, .. } => error,
            // A page with live blocks could not be mapped again, after a compaction. (The limit is of allocations.)
            PoolError::Stuck { .. } | PoolError::Limit { .. } => CallError {
                function: "cuMemMap",
                code: CUresult::MAP_FAILED,
            },
        };
        record_lost(state, pool, error);
        error
    })
}

/// Records what a pool still holds as not freed.
fn record_lost(state: &ContextState, pool: &Pool<PoolDriver>, error: CallError) {
    let held = pool.stats().held;
    if held != 0 {
        let key = Key::new(ResourceKind::Physical, 0);
        state.record_failed_free(key, held, None, error);
    }
}

/// A pool of a context, from its creation until it is destroyed.
#[derive(Clone)]
struct Entry {
    /// Not by its guard alone: a pool whose last reference is dropped, and one that the driver refuses to destroy, must know
    /// of a stream that ends, and teardown destroys it.
    pool: Arc<Pool<PoolDriver>>,
    guard: Weak<VirtualPool>,
    /// For the diagnosis and for snapshots, when the guard is dropped.
    name: String,
    number: u64,
    label: Option<String>,
}

impl Entry {
    /// Whether its guard and all of its blocks are dropped.
    fn is_orphan(&self) -> bool {
        self.guard.strong_count() == 0
    }

    /// What it holds, unless another thread works on it for long.
    fn usage(&self) -> Option<PoolUsage> {
        let usage = within_patience(|| self.pool.try_usage())?;
        // Freed blocks that threads keep are not in use.
        let (stats, kept) = (usage.stats, usage.cached_by_threads);
        let mut pool = PoolUsage::new(self.number);
        pool.label.clone_from(&self.label);
        pool.held = stats.held;
        pool.used = stats.used - kept;
        pool.cached_by_threads = kept;
        pool.cached = stats.mapped_free();
        pool.unmapped = stats.idle;
        pool.pages = stats.held / PAGE;
        pool.pinned_pages = usage.pinned_pages;
        Some(pool)
    }
}

/// Streams of a pool that ended without a point. Their work is complete when the device has been waited for.
pub(in crate::core) struct Unfinished {
    pool: Arc<Pool<PoolDriver>>,
    streams: Vec<u64>,
}

impl Unfinished {
    /// The device has been waited for since. The caller is inside the gate.
    pub(in crate::core) fn finish(self) {
        self.pool.ended_streams_are_idle(&self.streams);
    }
}

/// The pools of a context, and the blocks of them that escaped.
#[derive(Default)]
pub(crate) struct PoolList {
    /// Whether there ever was one: most contexts have none.
    any: AtomicBool,
    pools: Mutex<Vec<Entry>>,
    /// The pool that all buffers of the context come from.
    of_context: OnceLock<Arc<VirtualPool>>,
    /// The pools of escaped blocks by address: a pool is not destroyed before they are freed.
    escaped: Mutex<HashMap<u64, Arc<VirtualPool>>>,
}

impl ContextState {
    /// The pools of cuguard in this context.
    pub(crate) fn pools_of_cuguard(&self) -> &PoolList {
        self.pools_of_cuguard
            .downcast_ref()
            .unwrap_or_else(|| unreachable!("the builder of contexts puts a PoolList there"))
    }
}

impl PoolList {
    pub(in crate::core) fn add(&self, guard: &Arc<VirtualPool>, pool: &Arc<Pool<PoolDriver>>) {
        lock(&self.pools).push(Entry {
            pool: pool.clone(),
            guard: Arc::downgrade(guard),
            name: guard.name(),
            number: guard.number(),
            label: guard.label().map(str::to_owned),
        });
        self.any.store(true, Ordering::Release);
    }

    fn entries(&self) -> Vec<Entry> {
        match self.any() {
            true => lock(&self.pools).clone(),
            false => Vec::new(),
        }
    }

    /// A stream ends: blocks that were freed on it are reused after its last work.
    pub(in crate::core) fn stream_ends(&self, state: &ContextState, stream: StreamId) {
        if !self.any() {
            return;
        }
        let Some(_inside) = state.try_enter() else {
            // Teardown waits for the device and destroys the pools. Where it only waits for the streams on the list, it may
            // have missed this one.
            for Entry { pool, .. } in self.entries() {
                pool.stream_is_lost(&stream);
            }
            return;
        };
        for Entry { pool, .. } in self.entries() {
            // Refused, as inside a host function: the pool knows that it cannot use the stream any more.
            let ended = pool.stream_ends(&stream);
            note_if_broken(state, "Stream::drop", &ended);
        }
    }

    /// Streams that ended without a point, to be [finished](Unfinished::finish) after a wait for the device.
    pub(in crate::core) fn unfinished(&self) -> Vec<Unfinished> {
        let of = |Entry { pool, .. }: Entry| {
            let streams = pool.unfinished_streams();
            (!streams.is_empty()).then_some(Unfinished { pool, streams })
        };
        self.entries().into_iter().filter_map(of).collect()
    }

    /// Whether streams ended without a point, also those of pools whose guards were dropped.
    pub(crate) fn has_unfinished_streams(&self) -> bool {
        !self.unfinished().is_empty()
    }

    /// Whether there ever was a pool.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// The pools that are alive.
    pub(crate) fn all(&self) -> Vec<Arc<VirtualPool>> {
        let entries = self.entries();
        entries
            .iter()
            .filter_map(|one| one.guard.upgrade())
            .collect()
    }

    /// Releases idle memory of all pools, and returns how many bytes. The caller is inside the gate. Keeps no pool alive: its
    /// guard may be dropped meanwhile.
    pub(in crate::core) fn trim(&self, state: &ContextState) -> u64 {
        self.destroy_orphans();
        let trim = |Entry { pool, .. }: Entry| {
            // What the driver refuses to release is kept, and tried again.
            let trimmed = pool.trim(0);
            note_if_broken(state, "Pool::trim", &trimmed);
            trimmed.unwrap_or(0)
        };
        self.entries().into_iter().map(trim).sum()
    }

    /// The names of the pools whose guards and blocks were dropped and whose streams have not done their work, and what they
    /// hold.
    pub(crate) fn orphans(&self) -> Vec<(String, Stats)> {
        let mut orphans = self.entries();
        orphans.retain(Entry::is_orphan);
        let of = |one: Entry| (one.name, one.pool.stats());
        orphans.into_iter().map(of).collect()
    }

    /// What the pools hold, by their numbers, for a snapshot. Does not call the driver, and does not wait long: a pool that
    /// another thread works on for longer is left out, because a report at exit and one of a process that hangs must be made.
    pub(crate) fn usage(&self) -> Vec<PoolUsage> {
        // In a forked child a thread that does not exist may hold a lock.
        if process::is_forked() {
            return Vec::new();
        }
        if !self.any() {
            return Vec::new();
        }
        let entries = within_patience(|| Some(try_lock(&self.pools)?.clone())).unwrap_or_default();
        let own = self.of_context().map(|pool| pool.number());
        let mut pools: Vec<_> = entries.iter().filter_map(Entry::usage).collect();
        for pool in &mut pools {
            pool.of_context = Some(pool.number) == own;
        }
        pools.sort_by_key(|pool| pool.number);
        pools
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
        if !self.any() {
            return None;
        }
        let pool = lock(&self.escaped).remove(&address)?;
        pool.note_recaptured(address);
        Some(pool)
    }

    /// Whether a block escaped from a pool.
    pub(crate) fn is_escaped(&self, address: u64) -> bool {
        // In a forked child a thread that does not exist may hold the lock.
        self.any() && !process::is_forked() && lock(&self.escaped).contains_key(&address)
    }

    /// Destroys a pool whose last reference is dropped, if no stream works on its memory any more. Does not wait. The caller
    /// is inside the gate.
    pub(in crate::core) fn destroy_orphan(&self, pool: &Arc<Pool<PoolDriver>>) -> bool {
        // It stays on the list meanwhile: a stream may end.
        let destroyed = destroy_if_idle(pool);
        if destroyed {
            lock(&self.pools).retain(|other| !Arc::ptr_eq(&other.pool, pool));
        }
        destroyed
    }

    /// Destroys the pools whose guards and blocks were dropped, if their streams have done the work that they had. Does not
    /// wait. The caller is inside the gate. Returns whether any was destroyed.
    pub(crate) fn destroy_orphans(&self) -> bool {
        let mut orphans = self.entries();
        orphans.retain(Entry::is_orphan);
        let destroyed = orphans.iter().filter(|one| self.destroy_orphan(&one.pool));
        destroyed.count() > 0
    }

    /// Destroys all pools, for teardown: the device is idle, and the context is current. A pool of escaped memory stays
    /// until the process exits, and so do the blocks where teardown frees no leaks. What the driver refuses to release is
    /// recorded. Returns the first error.
    pub(in crate::core) fn destroy_all(&self, state: &ContextState) -> result::Result {
        let mut first = Ok(());
        let entries = std::mem::take(&mut *lock(&self.pools));
        let escaped = std::mem::take(&mut *lock(&self.escaped));
        for Entry { pool, guard, .. } in &entries {
            if process::is_exiting() {
                break;
            }
            let Some(guard) = guard.upgrade() else {
                first = first.and(destroy(state, pool));
                continue;
            };
            let has_escaped = escaped.values().any(|other| Arc::ptr_eq(other, &guard));
            if state.device_idle.load(Ordering::Acquire) {
                // As in `becomes_idle`.
                pool.open_streams_are_idle();
            }
            if has_escaped || !state.free_leaks && guard.has_blocks() {
                guard.abandon(state.device_idle.load(Ordering::Acquire));
            } else {
                first = first.and(guard.destroy(|pool| destroy(state, pool)));
            }
        }
        // The context is closed: their drops do nothing.
        drop(escaped);
        first
    }

    /// Records what the pools hold as not freed: for teardown that cannot make the context current. Memory that escaped, or
    /// that is not to be freed, stays as it would otherwise.
    pub(in crate::core) fn lose_all(&self, state: &ContextState, error: CallError) {
        let entries = std::mem::take(&mut *lock(&self.pools));
        let escaped = std::mem::take(&mut *lock(&self.escaped));
        for Entry { pool, guard, .. } in &entries {
            let record = |pool: &Pool<PoolDriver>| {
                record_lost(state, pool, error);
                Ok(())
            };
            let Some(guard) = guard.upgrade() else {
                let _ = record(pool);
                continue;
            };
            let stays = !state.free_leaks && pool.stats().used != 0
                || escaped.values().any(|other| Arc::ptr_eq(other, &guard));
            let _ = match stays {
                true => guard.destroy(|_| Ok(())),
                false => guard.destroy(record),
            };
        }
    }
}
