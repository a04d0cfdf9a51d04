//! The state of a pool that its guard, its blocks and its context share.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use cuguard_driver::result::{self, CallError};
use cuguard_driver::sys::CUresult;
use cuguard_pool::{Block, Central, Pool, PoolError, Settings, Stats, ThreadCache};
use cuguard_sync::process;

use crate::core::pools::decay;
use crate::core::pools::driver::PoolDriver;
use crate::core::pools::stream_id::StreamId;
use crate::core::shared::budget::Refused;
use crate::core::shared::context_state::ContextState;
use crate::core::shared::lock::lock;
use crate::core::shared::request::Failed;
use crate::error::{Error, Result};

/// The largest block that threads keep for their next allocation.
pub(in crate::core) const LARGEST_CACHED: u64 = Pool::<PoolDriver>::LARGEST_CACHED;

/// What the builder of a pool provides.
#[derive(Clone, Debug)]
pub(crate) struct PoolConfig {
    pub(crate) settings: Settings,
    pub(crate) label: Option<String>,
}

/// A home of a pool's blocks, as the pool knows it.
pub(in crate::core) trait KnownHome: Send {
    fn is_alive(&self) -> bool;

    /// The guard of the pool is dropped: nothing keeps the home for more blocks. Not in a forked child.
    fn end(&self);
}

/// A pool of one context. Its memory is released to the device with the last reference, or by teardown.
pub(crate) struct VirtualPool {
    /// Shared with the context, which has it until it is destroyed, and with the thread that releases idle memory.
    pool: Arc<Pool<PoolDriver>>,
    /// Not a strong reference: the context has one to its own pool.
    state: Weak<ContextState>,
    /// Where the state is; no other is there while this keeps its memory.
    state_address: usize,
    /// Unique for the life of the process.
    number: u64,
    config: PoolConfig,
    /// The homes of its blocks, until the guard is dropped.
    homes: Mutex<Option<Vec<Box<dyn KnownHome>>>>,
    /// The sizes of blocks that escaped and are owned again, by address.
    recaptured: Mutex<HashMap<u64, u64>>,
    any_recaptured: AtomicBool,
    /// Nothing is allocated or freed any more, and nothing calls the driver.
    destroyed: AtomicBool,
}

impl fmt::Debug for VirtualPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pool {}", self.number)
    }
}

impl VirtualPool {
    /// Creates an empty pool. The driver is not called.
    pub(crate) fn new(state: &Arc<ContextState>, config: PoolConfig) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let pool = Arc::new(Self {
            pool: Arc::new(Pool::new(PoolDriver::new(state), config.settings)),
            state: Arc::downgrade(state),
            state_address: Arc::as_ptr(state).addr(),
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            config,
            homes: Mutex::new(Some(Vec::new())),
            recaptured: Mutex::default(),
            any_recaptured: AtomicBool::new(false),
            destroyed: AtomicBool::new(false),
        });
        state.pools_of_cuguard().add(&pool, &pool.pool);
        decay::watch(state, &pool.pool, pool.config.settings.decay);
        pool
    }

    #[inline]
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// The name that the program gave it.
    pub(crate) fn label(&self) -> Option<&str> {
        self.config.label.as_deref()
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.config.settings
    }

    /// Its name in the diagnosis.
    pub(crate) fn name(&self) -> String {
        match &self.config.label {
            Some(label) => format!("pool {label:?}"),
            None => format!("pool {}", self.number),
        }
    }

    #[inline]
    pub(crate) fn is_of(&self, state: &Arc<ContextState>) -> bool {
        self.state_address == Arc::as_ptr(state).addr()
    }

    pub(crate) fn state(&self) -> Option<Arc<ContextState>> {
        self.state.upgrade()
    }

    /// Adds a home, to end with the guard. False once the guard is dropped.
    pub(in crate::core) fn add_home(&self, home: Box<dyn KnownHome>) -> bool {
        let mut homes = lock(&self.homes);
        let Some(homes) = &mut *homes else {
            return false;
        };
        homes.retain(|home| home.is_alive());
        homes.push(home);
        true
    }

    /// The guard is dropped: only blocks keep the pool alive.
    pub(crate) fn end_homes(&self) {
        if process::is_forked() {
            // A thread that does not exist here may hold the lock.
            return;
        }
        let homes = lock(&self.homes).take().unwrap_or_default();
        for home in &homes {
            home.end();
        }
    }

    /// The calling thread's cache of the stream.
    pub(in crate::core) fn thread_cache(&self, stream: &StreamId) -> Option<ThreadCache> {
        self.pool.thread_cache(stream)
    }

    /// The address of a block that a cache of this pool has. The caller is inside the gate.
    #[inline(always)]
    pub(in crate::core) fn allocate_from(&self, cache: &ThreadCache, bytes: u64) -> Option<u64> {
        self.pool.allocate_from(cache, bytes)
    }

    /// Allocates a block. The caller is inside the gate.
    pub(crate) fn allocate(
        &self,
        stream: &StreamId,
        bytes: u64,
    ) -> std::result::Result<u64, PoolError<CallError>> {
        let block = self.pool.allocate(stream, bytes);
        block
            .map(|block| block.address)
            .map_err(|error| match error {
                // Now that what was created for this block is released.
                PoolError::Limit { limit, .. } => PoolError::Limit {
                    held: self.pool.stats().held,
                    limit,
                },
                other => other,
            })
    }

    /// Frees a block of this size into a cache of this pool. False, with nothing done, where it cannot. The caller is inside
    /// the gate.
    #[inline(always)]
    pub(in crate::core) fn free_to(&self, cache: &ThreadCache, address: u64, bytes: u64) -> bool {
        // Relaxed: the owner of a block is ordered after what it was recaptured by.
        !self.any_recaptured.load(Ordering::Relaxed) && self.pool.free_to(cache, address, bytes)
    }

    /// Frees a block of this size in the order of a stream. Never waits, and makes no driver call. The caller is inside the
    /// gate.
    #[inline(never)]
    pub(crate) fn free(&self, stream: &StreamId, address: u64, bytes: u64) {
        let mut bytes = Central::<PoolDriver>::rounded(bytes);
        if self.any_recaptured.load(Ordering::Relaxed) {
            bytes = self.take_recaptured(address).unwrap_or(bytes);
        }
        self.pool.free(stream, Block { address, bytes });
    }

    /// A block that escaped is owned again, perhaps with fewer values than it has room for: it is freed with its own size.
    pub(in crate::core) fn note_recaptured(&self, address: u64) {
        if let Some(bytes) = self.pool.bytes_at(address) {
            lock(&self.recaptured).insert(address, bytes);
            self.any_recaptured.store(true, Ordering::Relaxed);
        }
    }

    /// The size of such a block, which is about to be freed.
    #[cold]
    fn take_recaptured(&self, address: u64) -> Option<u64> {
        let mut recaptured = lock(&self.recaptured);
        let bytes = recaptured.remove(&address);
        let any = !recaptured.is_empty();
        self.any_recaptured.store(any, Ordering::Relaxed);
        bytes
    }

    /// Releases idle memory to the device, but for `keep` bytes. Returns how much was released. The caller is inside the
    /// gate.
    pub(crate) fn trim(&self, keep: u64) -> std::result::Result<u64, PoolError<CallError>> {
        match self.is_destroyed() {
            true => Ok(0),
            false => self.pool.trim(keep),
        }
    }

    /// Whether blocks are allocated. The caller is inside the gate, or is teardown.
    pub(in crate::core) fn has_blocks(&self) -> bool {
        // Threads keep freed blocks, which count as allocated until this.
        self.pool.flush();
        self.pool.stats().used != 0
    }

    /// Merges pages. The caller is alone in the context, and the device is idle.
    pub(in crate::core) fn merge(
        &self,
        wanted: u64,
    ) -> std::result::Result<cuguard_pool::Compacted, PoolError<CallError>> {
        self.pool.compact(wanted)
    }

    /// What it holds; nothing in a forked child, where a thread that does not exist may hold the lock.
    pub(crate) fn stats(&self) -> Stats {
        if process::is_forked() {
            return Stats::default();
        }
        let mut stats = self.pool.stats();
        // Freed blocks that threads keep are not in use.
        let kept = self.pool.cached_by_threads().min(stats.used);
        stats.used -= kept;
        stats.cached += kept;
        stats
    }

    /// The bytes of blocks that were freed and that their streams may still use, but for those that threads keep: none after
    /// [`trim`](Self::trim). The caller is inside the gate.
    pub(crate) fn pending(&self) -> u64 {
        match self.is_destroyed() {
            true => 0,
            false => self.pool.pending(),
        }
    }

    /// Whether streams ended on which no event could be recorded: only a wait for the context helps.
    pub(crate) fn has_unfinished_streams(&self) -> bool {
        !self.pool.unfinished_streams().is_empty()
    }

    /// Excludes the pages of an address from compaction, or includes them again.
    pub(crate) fn set_pinned(&self, address: u64, pinned: bool) {
        match pinned {
            true => self.pool.pin(address),
            false => self.pool.unpin(address),
        };
    }

    fn is_destroyed(&self) -> bool {
        self.destroyed.load(Ordering::Acquire)
    }

    /// Leaves its memory as it is until the process exits: other code still has addresses of it. What no block uses is
    /// released where the device is idle; else that would record events, and teardown has destroyed the streams.
    pub(crate) fn abandon(&self, is_idle: bool) {
        if !self.destroyed.swap(true, Ordering::AcqRel) && is_idle {
            let _ = self.pool.trim(0);
        }
    }

    /// Unmaps and releases everything, blocks that are live too. For teardown, with the device idle.
    pub(in crate::core) fn destroy(
        &self,
        destroy: impl FnOnce(&Pool<PoolDriver>) -> result::Result,
    ) -> result::Result {
        match self.destroyed.swap(true, Ordering::AcqRel) {
            true => Ok(()),
            false => destroy(&self.pool),
        }
    }
}

impl Drop for VirtualPool {
    fn drop(&mut self) {
        if process::is_exiting() || self.is_destroyed() {
            return;
        }
        let Some(state) = self.state.upgrade() else {
            return;
        };
        // If the context is closed, teardown destroys it: the context has it still.
        let Some(_inside) = state.try_enter() else {
            return;
        };
        if !state.pools_of_cuguard().destroy_orphan(&self.pool) {
            // A stream still works on freed blocks, or this is a host function, where the driver permits no call.
            decay::watch_orphan(&state, &self.pool);
        }
    }
}

/// Why a block was not allocated.
#[cold]
pub(crate) fn failed(
    state: &ContextState,
    operation: &'static str,
    bytes: u64,
    error: PoolError<CallError>,
) -> Failed {
    match error {
        PoolError::Driver { error, .. } if error.code == CUresult::OUT_OF_MEMORY => {
            Failed::OutOfMemory(Refused::Memory(error))
        }
        PoolError::Limit { held, limit } => Failed::OutOfMemory(Refused::PoolLimit { held, limit }),
        error => Failed::Other(Box::new(error_of(state, operation, bytes, error))),
    }
}

/// The error of an operation of a pool.
#[cold]
pub(crate) fn error_of(
    state: &ContextState,
    operation: &'static str,
    bytes: u64,
    error: PoolError<CallError>,
) -> Error {
    match error {
        PoolError::Driver { error, .. } => {
            state.error(operation, error, (bytes != 0).then_some(bytes))
        }
        other => Error::Pool {
            operation,
            reason: other.to_string(),
        },
    }
}

/// Turns the error of a pool into one of this operation.
pub(crate) fn check<T>(
    state: &ContextState,
    operation: &'static str,
    result: std::result::Result<T, PoolError<CallError>>,
) -> Result<T> {
    result.map_err(|error| error_of(state, operation, 0, error))
}
