//! The pool behind its lock.

use crate::Block;
use crate::driver::Driver;
use crate::error::PoolError;
use crate::hash::FastMap;
use crate::settings::Settings;
use crate::size::{self, SMALLEST_RANGE};
use crate::state::{State, refused};
use crate::stats::{Compacted, PageUse, Stats, Usage};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

/// The pool behind its lock: the path for blocks that no cache has.
///
/// Calls of the driver are made with the lock held, but a [`free`](Self::free) does not wait for them.
pub struct Central<D: Driver> {
    state: Mutex<State<D>>,
    /// Frees that came while the lock was held. Whoever has the lock next does them first.
    late: Mutex<Vec<(D::Stream, Block)>>,
    has_late: AtomicBool,
    /// Which blocks must not go into a cache when they are freed, known without the pool's lock.
    uncached: Mutex<Uncached>,
    /// Whether there are any.
    any_uncached: AtomicBool,
}

/// Blocks that must not go into a cache when they are freed.
#[derive(Debug, Default)]
struct Uncached {
    /// The addresses of blocks with pins: these end.
    pinned: FastMap<()>,
    /// All blocks, because a page with live blocks is not mapped: a cache would hand out those of that page.
    is_stuck: bool,
}

impl Uncached {
    fn is_empty(&self) -> bool {
        self.pinned.is_empty() && !self.is_stuck
    }
}

impl<D: Driver> Central<D> {
    /// Creates an empty pool. Makes no call of the driver.
    pub fn new(driver: D, settings: Settings) -> Self {
        Self {
            state: Mutex::new(State::new(driver, settings)),
            late: Mutex::new(Vec::new()),
            has_late: AtomicBool::new(false),
            uncached: Mutex::default(),
            any_uncached: AtomicBool::new(false),
        }
    }

    /// What a block of this size occupies: the [`bytes`](Block::bytes) of its block.
    #[inline]
    pub const fn rounded(bytes: u64) -> u64 {
        size::rounded(bytes)
    }

    /// Allocates a block for use on a stream.
    ///
    /// # Errors
    ///
    /// The driver's, or that the limit is reached. What no block uses has been released then.
    pub fn allocate(&self, stream: &D::Stream, bytes: u64) -> Result<Block, PoolError<D::Error>> {
        let bytes = size::rounded(bytes);
        let stream = D::stream_id(stream);
        let address = self.with(|state| {
            state.retry_stuck()?;
            if bytes < SMALLEST_RANGE {
                state.allocate_slot(stream, bytes)
            } else {
                state.allocate_range(stream, bytes)
            }
        })?;
        Ok(Block { address, bytes })
    }

    /// Allocates up to `count` blocks of one size and appends their addresses. All but the first only where that needs no
    /// call of the driver. Returns how many.
    ///
    /// # Errors
    ///
    /// As for [`allocate`](Self::allocate): there is not even one.
    pub fn allocate_many(
        &self,
        stream: &D::Stream,
        bytes: u64,
        count: usize,
        out: &mut Vec<u64>,
    ) -> Result<usize, PoolError<D::Error>> {
        if count == 0 {
            return Ok(0);
        }
        let bytes = size::rounded(bytes);
        let stream = D::stream_id(stream);
        let before = out.len();
        self.with(|state| {
            state.retry_stuck()?;
            if bytes < SMALLEST_RANGE {
                out.push(state.allocate_slot(stream, bytes)?);
                let class = size::class_of(bytes);
                let more = || state.take_slot(class, stream);
                out.extend(std::iter::from_fn(more).take(count - 1));
            } else {
                out.push(state.allocate_range(stream, bytes)?);
                let more = || {
                    state
                        .take_range(stream, bytes)
                        .or_else(|| state.take_vacant(bytes))
                };
                out.extend(std::iter::from_fn(more).take(count - 1));
            }
            Ok(out.len() - before)
        })
    }

    /// Frees a block after the work enqueued on the stream so far. On another stream than that of the allocation, the caller
    /// has ordered that stream after the work that uses the block. Never waits and makes no call of the driver. An address
    /// that is not that of a live block of this size is ignored and counted in [`Stats::wrong_frees`].
    pub fn free(&self, stream: &D::Stream, block: Block) {
        self.is_uncached(block.address);
        if let Some(state) = self.try_lock() {
            self.with_locked(state, |state| state.free(stream, block));
        } else {
            self.late().push((stream.clone(), block));
            self.has_late.store(true, Ordering::Release);
        }
    }

    /// Frees blocks of one size.
    pub fn free_many(&self, stream: &D::Stream, bytes: u64, addresses: &[u64]) {
        let bytes = size::rounded(bytes);
        let blocks = addresses.iter().map(|&address| Block { address, bytes });
        if let Some(state) = self.try_lock() {
            self.with_locked(state, |state| {
                blocks.for_each(|block| state.free(stream, block))
            });
        } else {
            self.late()
                .extend(blocks.map(|block| (stream.clone(), block)));
            self.has_late.store(true, Ordering::Release);
        }
    }

    /// Call it before a stream is destroyed, after the last free on it: records the point at which other streams may use
    /// what was freed on it.
    ///
    /// # Errors
    ///
    /// The point was refused. The stream is not used any more all the same, and the blocks are not reused before the
    /// caller calls [`stream_is_idle`](Self::stream_is_idle) or [`ended_streams_are_idle`](Self::ended_streams_are_idle).
    pub fn stream_ends(&self, stream: &D::Stream) -> Result<(), PoolError<D::Error>> {
        let id = D::stream_id(stream);
        self.with(|state| {
            state
                .streams
                .end(&state.driver, id)
                .map_err(refused("record"))
        })
    }

    /// As [`stream_ends`](Self::stream_ends), where the driver cannot be called: as if the point was refused.
    pub fn stream_is_lost(&self, stream: &D::Stream) {
        self.with(|state| state.streams.lose(D::stream_id(stream)));
    }

    /// The caller knows that all work enqueued on the stream is complete: other streams may use what was freed on it.
    pub fn stream_is_idle(&self, stream: &D::Stream) {
        self.with(|state| state.streams.finish(D::stream_id(stream)));
    }

    /// The numbers of streams that [ended](Self::stream_ends) and whose point was refused. Read it before a wait for the
    /// device; after the wait, [`ended_streams_are_idle`](Self::ended_streams_are_idle).
    pub fn unfinished_streams(&self) -> Vec<u64> {
        self.with(|state| state.streams.unfinished())
    }

    /// The caller has waited for the device since it read these numbers: the work of those streams is complete.
    pub fn ended_streams_are_idle(&self, streams: &[u64]) {
        self.with(|state| state.streams.finish_ended(streams));
    }

    /// Whether a stream may still do work that uses what was freed on it.
    pub fn has_pending(&self) -> bool {
        self.with(|state| {
            state.streams.record_and_poll(&state.driver);
            state.streams.has_pending()
        })
    }

    /// The bytes of blocks that were freed and that other streams cannot use yet.
    pub fn pending(&self) -> u64 {
        self.with(|state| {
            state.streams.record_and_poll(&state.driver);
            state.pending_bytes()
        })
    }

    /// The caller knows that all streams that have not [ended](Self::stream_ends) are idle: no point is recorded on them for
    /// what was freed so far.
    pub fn open_streams_are_idle(&self) {
        self.with(|state| state.streams.finish_open());
    }

    /// Releases idle memory until at most `keep` bytes of it remain. Returns the bytes released.
    ///
    /// # Errors
    ///
    /// A release was refused. The memory is kept, and the release retried.
    pub fn trim(&self, keep: u64) -> Result<u64, PoolError<D::Error>> {
        self.with(|state| state.trim(keep))
    }

    /// Releases what is idle longer than the decay time, but [`keep`](Settings::keep). Call it now and then: time is counted
    /// from one call to the next. Returns the bytes released.
    ///
    /// # Errors
    ///
    /// As for [`trim`](Self::trim).
    pub fn decay(&self, now: Instant) -> Result<u64, PoolError<D::Error>> {
        self.with(|state| state.decay(now))
    }

    /// Merges half-empty pages and releases what becomes free, until `wanted` bytes are released or nothing more can be merged.
    ///
    /// The caller guarantees that no work is in flight that uses blocks of the pool and that none is enqueued meanwhile.
    ///
    /// # Errors
    ///
    /// The driver refused a call before anything was released: see [`Compacted::refused`]. Every block is where it was, with
    /// the same bytes.
    pub fn compact(&self, wanted: u64) -> Result<Compacted, PoolError<D::Error>> {
        self.with(|state| state.compact(wanted))
    }

    /// How much memory the pool holds, and what for.
    pub fn stats(&self) -> Stats {
        self.with(|state| state.stats())
    }

    /// What the pool holds, for reports: also for a thread that must not wait, and where the driver must not be called. `None`
    /// while another thread holds the lock.
    pub fn try_usage(&self) -> Option<Usage> {
        // Frees that came late are not done here: a stream that is dropped with them may call the driver.
        self.try_lock().map(|state| state.usage())
    }

    /// The physical pages that blocks share, ordered by address.
    pub fn pages(&self) -> Vec<PageUse> {
        self.with(|state| state.page_uses())
    }

    /// Keeps the physical memory of a live block behind its address: its page is not emptied into another one. Other blocks
    /// may be placed or merged into the rest of that page. Counted: each pin needs an [`unpin`](Self::unpin), or ends when the
    /// block is freed. Returns false where no live block has this address.
    pub fn pin(&self, address: u64) -> bool {
        self.with(|state| {
            let pinned = state.pin(address);
            self.note_pinned(address, state.is_pinned(address));
            pinned
        })
    }

    /// Removes one pin of the block at this address. Returns false where it has none.
    pub fn unpin(&self, address: u64) -> bool {
        self.with(|state| {
            let unpinned = state.unpin(address);
            self.note_pinned(address, state.is_pinned(address));
            unpinned
        })
    }

    /// What the live block at this address occupies. Blocks in caches are live.
    pub fn bytes_at(&self, address: u64) -> Option<u64> {
        self.with(|state| state.bytes_at(address))
    }

    fn note_pinned(&self, address: u64, is_pinned: bool) {
        self.update_uncached(|uncached| {
            match is_pinned {
                true => uncached.pinned.insert(address, ()),
                false => uncached.pinned.remove(&address),
            };
        });
    }

    /// Whether a block that is about to be freed must not go into a cache. Its pins end, once it is freed.
    #[inline]
    pub(crate) fn is_uncached(&self, address: u64) -> bool {
        self.any_uncached() && self.take_uncached(address)
    }

    /// Whether there is any such block.
    #[inline]
    pub(crate) fn any_uncached(&self) -> bool {
        // Relaxed: who frees a block is ordered after who pinned it, and after a compaction.
        self.any_uncached.load(Ordering::Relaxed)
    }

    #[cold]
    fn take_uncached(&self, address: u64) -> bool {
        self.update_uncached(|uncached| {
            let was_pinned = uncached.pinned.remove(&address).is_some();
            was_pinned || uncached.is_stuck
        })
    }

    fn update_uncached<R>(&self, update: impl FnOnce(&mut Uncached) -> R) -> R {
        let mut uncached = cuguard_sync::lock(&self.uncached);
        let result = update(&mut uncached);
        let any = !uncached.is_empty();
        self.any_uncached.store(any, Ordering::Relaxed);
        result
    }

    /// Unmaps and releases everything, blocks that are live too. The caller guarantees that no work uses them.
    ///
    /// # Errors
    ///
    /// The first; what the driver refused stays, and the next call retries it.
    pub fn destroy(&self) -> Result<(), PoolError<D::Error>> {
        self.with(|state| state.destroy())
    }

    /// Runs `operation` with the lock, after the frees that came while it was held.
    fn with<R>(&self, operation: impl FnOnce(&mut State<D>) -> R) -> R {
        let state = cuguard_sync::lock(&self.state);
        self.with_locked(state, operation)
    }

    fn with_locked<R>(
        &self,
        mut state: MutexGuard<'_, State<D>>,
        operation: impl FnOnce(&mut State<D>) -> R,
    ) -> R {
        self.free_late(&mut state);
        let result = operation(&mut state);
        let is_stuck = !state.stuck.is_empty();
        if is_stuck != std::mem::replace(&mut state.noted_stuck, is_stuck) {
            self.update_uncached(|uncached| uncached.is_stuck = is_stuck);
        }
        let unneeded = std::mem::take(&mut state.streams.unneeded);
        drop(state);
        drop(unneeded);
        result
    }

    fn try_lock(&self) -> Option<MutexGuard<'_, State<D>>> {
        cuguard_sync::try_lock(&self.state)
    }

    fn late(&self) -> MutexGuard<'_, Vec<(D::Stream, Block)>> {
        cuguard_sync::lock(&self.late)
    }

    fn free_late(&self, state: &mut State<D>) {
        if self.has_late.load(Ordering::Acquire) {
            let late = {
                let mut late = self.late();
                self.has_late.store(false, Ordering::Relaxed);
                std::mem::take(&mut *late)
            };
            for (stream, block) in late {
                state.free(&stream, block);
                state.streams.unneeded.push(stream);
            }
        }
    }
}

impl<D: Driver> fmt::Debug for Central<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Central");
        if let Ok(state) = self.state.try_lock() {
            f.field("stats", &state.stats());
        }
        f.finish_non_exhaustive()
    }
}

impl<D: Driver> State<D> {
    fn free(&mut self, stream: &D::Stream, block: Block) {
        if block.bytes == 0 || block.bytes != size::rounded(block.bytes) {
            self.wrong_frees += 1;
        } else if block.bytes < SMALLEST_RANGE {
            self.free_slot(stream, block.address, block.bytes);
        } else {
            self.free_range(stream, block.address, block.bytes);
        }
    }
}
