//! The pool with its caches.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use crate::Block;
use crate::cache::{Backend, Caches, Class, ThreadCache};
use crate::central::Central;
use crate::driver::Driver;
use crate::error::PoolError;
use crate::settings::Settings;
use crate::stats::{Compacted, PageUse, Stats, Usage};

/// A pool of device memory: [`Central`] behind caches of each thread and stream.
///
/// Blocks of up to 1 MiB are allocated from and freed into the calling thread's cache of the stream, without a lock that
/// threads share. A cache holds up to 1 MiB of each size (at least one block, at most 64) and
/// [`CACHE_LIMIT`](Self::CACHE_LIMIT) bytes in all. What has no room, and what a cache lacks, moves in batches.
///
/// A thread that ends frees its caches into the pool. The pool's drop empties all caches; it does not call the driver: see
/// [`destroy`](Self::destroy).
///
/// ```
/// use cuguard_pool::{Driver, Pool, PoolError};
///
/// fn use_once<D: Driver + 'static>(pool: &Pool<D>, stream: &D::Stream) -> Result<(), PoolError<D::Error>> {
///     let block = pool.allocate(stream, 1_000_000)?;
///     assert_eq!(block.bytes, 62 * 16 * 1024);
///     // Work that is enqueued on the stream uses the block.
///     pool.free(stream, block);
///     Ok(())
/// }
/// ```
pub struct Pool<D: Driver + 'static> {
    caches: Arc<Caches<Central<D>>>,
}

impl<D: Driver + 'static> Pool<D> {
    /// What the cache of one thread and stream may hold, in bytes.
    pub const CACHE_LIMIT: u64 = crate::cache::LIMIT;

    /// The largest block that caches hold, in bytes.
    pub const LARGEST_CACHED: u64 = crate::cache::LARGEST;

    /// Creates an empty pool. Makes no call of the driver.
    pub fn new(driver: D, settings: Settings) -> Self {
        Self {
            caches: Caches::new(Central::new(driver, settings)),
        }
    }

    /// Allocates a block for use on a stream.
    ///
    /// # Errors
    ///
    /// The driver's, or that the limit is reached. What no block uses has been released then, the caches of all threads
    /// included.
    #[inline]
    pub fn allocate(&self, stream: &D::Stream, bytes: u64) -> Result<Block, PoolError<D::Error>> {
        let Some(class) = Class::of(bytes) else {
            let block = self.central().allocate(stream, bytes);
            return block.or_else(|error| self.flush_and_allocate(stream, bytes, error));
        };
        match self.caches.allocate(stream, class) {
            Ok(address) => Ok(Block {
                address,
                bytes: class.bytes(),
            }),
            Err(error) => self.flush_and_allocate(stream, bytes, error),
        }
    }

    /// The calling thread's cache of the stream, a new one if need be: for callers that keep it beside what they know of the
    /// stream, so that [`allocate_from`](Self::allocate_from) and [`free_to`](Self::free_to) need not look for it. `None`
    /// while the thread's locals are dropped, and once the pool is destroyed.
    pub fn thread_cache(&self, stream: &D::Stream) -> Option<ThreadCache> {
        self.caches.thread_cache(stream)
    }

    /// The address of a block that the cache holds, for a size that may be smaller. `None` if it holds none of this size,
    /// if it is another thread's, while another thread empties it, and on machines without `membarrier`: then
    /// [`allocate`](Self::allocate) has one.
    ///
    /// The cache is of this pool, and of the stream that the block is for.
    #[inline(always)]
    pub fn allocate_from(&self, cache: &ThreadCache, bytes: u64) -> Option<u64> {
        debug_assert!(self.caches.is_own(cache));
        cache.try_pop(Class::of(bytes)?)
    }

    /// Frees a block into the cache that it was allocated from. `bytes` is the size that was asked for, or what the block
    /// occupies. False, with nothing done, if the cache has no room for it, if it is another thread's, while another
    /// thread empties it, on machines without `membarrier`, or if the block is pinned: then call [`free`](Self::free).
    ///
    /// The cache is of this pool, and of the stream that the block is freed on.
    #[inline(always)]
    pub fn free_to(&self, cache: &ThreadCache, address: u64, bytes: u64) -> bool {
        debug_assert!(self.caches.is_own(cache));
        match Class::of(bytes) {
            Some(class) => !self.central().any_uncached() && cache.try_push(class, address),
            None => false,
        }
    }

    /// Retries where other caches have memory that this allocation lacks.
    #[cold]
    #[inline(never)]
    fn flush_and_allocate(
        &self,
        stream: &D::Stream,
        bytes: u64,
        error: PoolError<D::Error>,
    ) -> Result<Block, PoolError<D::Error>> {
        let is_short = match error {
            PoolError::Driver { error, .. } => D::is_out_of_memory(&error),
            PoolError::Limit { .. } => true,
            PoolError::Stuck { .. } => false,
        };
        if !is_short || self.flush() == 0 {
            return Err(error);
        }
        self.central().allocate(stream, bytes)
    }

    /// Frees a block after the work enqueued on the stream so far, on any thread. Never waits and makes no call of the driver.
    /// While a page is [stuck](PoolError::Stuck) no block goes into a cache, so that none is handed out.
    ///
    /// The block is live and is not used after this; the stream is the one that it was allocated for, or one that is ordered
    /// after its last use. A block that is freed twice may be handed out twice.
    #[inline]
    pub fn free(&self, stream: &D::Stream, block: Block) {
        match Class::of(block.bytes) {
            // Its pins end, or a page is stuck: known behind the caches only.
            Some(class) if self.central().is_uncached(block.address) => {
                self.central()
                    .free_many(stream, class.bytes(), &[block.address]);
            }
            Some(class) => self.caches.free(stream, class, block.address),
            None => self.central().free(stream, block),
        }
    }

    /// Call it before a stream is destroyed, after the last free on it: the caches of the stream are emptied on all threads
    /// and hold nothing any more, and the point is recorded at which other streams may use their blocks.
    ///
    /// # Errors
    ///
    /// The point was refused. The stream is not used any more all the same, and the blocks are not reused before the
    /// caller calls [`stream_is_idle`](Self::stream_is_idle) or [`ended_streams_are_idle`](Self::ended_streams_are_idle).
    pub fn stream_ends(&self, stream: &D::Stream) -> Result<(), PoolError<D::Error>> {
        self.caches.stream_ends(stream);
        self.central().stream_ends(stream)
    }

    /// As [`stream_ends`](Self::stream_ends), where the driver cannot be called: as if the point was refused.
    pub fn stream_is_lost(&self, stream: &D::Stream) {
        self.caches.stream_ends(stream);
        self.central().stream_is_lost(stream);
    }

    /// The caller knows that all work enqueued on the stream is complete: other streams may use what was freed on it. Blocks
    /// in caches stay there.
    pub fn stream_is_idle(&self, stream: &D::Stream) {
        self.central().stream_is_idle(stream);
    }

    /// The numbers of streams that [ended](Self::stream_ends) and whose point was refused. Read it before a wait for the
    /// device; after the wait, [`ended_streams_are_idle`](Self::ended_streams_are_idle).
    pub fn unfinished_streams(&self) -> Vec<u64> {
        self.central().unfinished_streams()
    }

    /// The caller has waited for the device since it read these numbers: the work of those streams is complete.
    pub fn ended_streams_are_idle(&self, streams: &[u64]) {
        self.central().ended_streams_are_idle(streams);
    }

    /// Whether a stream may still do work that uses what was freed on it. Blocks in caches are not looked at: flush them first,
    /// or know that their streams are idle.
    pub fn has_pending(&self) -> bool {
        self.central().has_pending()
    }

    /// The bytes of blocks that were freed and that other streams cannot use yet, without those in caches.
    pub fn pending(&self) -> u64 {
        self.central().pending()
    }

    /// Flushes the caches. The caller knows that all streams that have not [ended](Self::stream_ends) are idle: no point is
    /// recorded on them for what was freed so far.
    pub fn open_streams_are_idle(&self) {
        self.flush();
        self.central().open_streams_are_idle();
    }

    /// Frees the blocks in the caches of all threads into the pool, and returns how many bytes.
    pub fn flush(&self) -> u64 {
        self.caches.flush()
    }

    /// Flushes the caches, and releases idle memory until at most `keep` bytes of it remain. Returns the bytes released.
    ///
    /// # Errors
    ///
    /// A release was refused. The memory is kept, and the release retried.
    pub fn trim(&self, keep: u64) -> Result<u64, PoolError<D::Error>> {
        self.flush();
        self.central().trim(keep)
    }

    /// Flushes the caches, and releases what is idle longer than the decay time. Returns the bytes released.
    ///
    /// # Errors
    ///
    /// As for [`trim`](Self::trim).
    pub fn decay(&self, now: Instant) -> Result<u64, PoolError<D::Error>> {
        self.flush();
        self.central().decay(now)
    }

    /// Flushes the caches, merges half-empty pages and releases what becomes free, until `wanted` bytes are released or
    /// nothing more can be merged.
    ///
    /// The caller guarantees that no work is in flight that uses blocks of the pool and that none is enqueued meanwhile.
    ///
    /// # Errors
    ///
    /// The driver refused a call before anything was released: see [`Compacted::refused`]. Every block is where it was, with
    /// the same bytes.
    pub fn compact(&self, wanted: u64) -> Result<Compacted, PoolError<D::Error>> {
        self.flush();
        self.central().compact(wanted)
    }

    /// How much memory the pool holds, and what for. Blocks in caches count as [used](Stats::used): see
    /// [`cached_by_threads`](Self::cached_by_threads).
    pub fn stats(&self) -> Stats {
        self.central().stats()
    }

    /// What the pool holds, for reports; see [`Central::try_usage`].
    pub fn try_usage(&self) -> Option<Usage> {
        let cached_by_threads = self.caches.try_bytes()?;
        let usage = self.central().try_usage()?;
        Some(Usage {
            // Not read in one moment.
            cached_by_threads: cached_by_threads.min(usage.stats.used),
            ..usage
        })
    }

    /// The blocks in the caches of all threads, in bytes.
    pub fn cached_by_threads(&self) -> u64 {
        self.caches.bytes()
    }

    /// How many caches threads have.
    pub fn cache_count(&self) -> usize {
        self.caches.count()
    }

    /// The physical pages that blocks share, ordered by address. Blocks in caches are among their live blocks, unless the
    /// caches are [flushed](Self::flush) first.
    pub fn pages(&self) -> Vec<PageUse> {
        self.central().pages()
    }

    /// Keeps the physical memory of a live block behind its address: its page is not emptied into another one. Other blocks
    /// may be placed or merged into the rest of that page. Counted: each pin needs an [`unpin`](Self::unpin), or ends when the
    /// block is freed. Returns false where no live block has this address.
    pub fn pin(&self, address: u64) -> bool {
        self.central().pin(address)
    }

    /// Removes one pin of the block at this address. Returns false where it has none.
    pub fn unpin(&self, address: u64) -> bool {
        self.central().unpin(address)
    }

    /// What the live block at this address occupies. Blocks in caches are live.
    pub fn bytes_at(&self, address: u64) -> Option<u64> {
        self.central().bytes_at(address)
    }

    /// Empties the caches for good, and unmaps and releases everything, blocks that are live too. The caller guarantees that
    /// no work uses them and that no thread allocates.
    ///
    /// # Errors
    ///
    /// The first; what the driver refused stays, and the next call retries it.
    pub fn destroy(&self) -> Result<(), PoolError<D::Error>> {
        self.caches.close();
        self.central().destroy()
    }

    /// The pool behind the caches.
    #[inline]
    pub fn central(&self) -> &Central<D> {
        self.caches.backend()
    }
}

impl<D: Driver + 'static> Drop for Pool<D> {
    fn drop(&mut self) {
        self.caches.close();
    }
}

impl<D: Driver + 'static> fmt::Debug for Pool<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("central", self.central())
            .finish_non_exhaustive()
    }
}

impl<D: Driver + 'static> Backend for Central<D> {
    type Stream = D::Stream;
    type Error = PoolError<D::Error>;

    #[inline]
    fn stream_id(stream: &D::Stream) -> u64 {
        D::stream_id(stream)
    }

    fn allocate_many(
        &self,
        stream: &D::Stream,
        bytes: u64,
        more: usize,
        out: &mut Vec<u64>,
    ) -> Result<u64, PoolError<D::Error>> {
        Central::allocate_many(self, stream, bytes, more + 1, out)?;
        match out.pop() {
            Some(address) => Ok(address),
            None => self.allocate(stream, bytes).map(|block| block.address),
        }
    }

    fn free_many(&self, stream: &D::Stream, bytes: u64, addresses: &[u64]) {
        Central::free_many(self, stream, bytes, addresses);
    }
}
