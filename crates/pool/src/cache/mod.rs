//! Caches in front of a pool: one for each thread and stream, without a lock that threads share.
//!
//! ```text
//!     thread ──► thread-local list ──► Cache (pool, stream) ──► list of the size ──► address
//!                                        │  ▲
//!                              overflow, │  │ refills,
//!                              a batch   ▼  │ a batch
//!                                       Backend: the pool behind its lock
//! ```
//!
//! A block has no home thread: it goes into the cache of the thread that frees it. A cache belongs to one stream, so
//! its blocks are in the order of that stream and can be reused at once. Each cache is a
//! [`Biased`](cuguard_sync::Biased) lock: its thread enters without an atomic read-modify-write, and other threads
//! empty it (to trim, to compact, when memory is short, when the stream or the pool ends) with a `membarrier`.
//!
//! This folder must not know of frames, windows, ranges or the driver.
//!
//! A forked child flushes nothing: its blocks are of no use, and threads that do not exist there may hold locks.
//!
//! No thread holds a cache while it calls the backend to allocate, nor a lock of the backend while it takes a cache.

mod class;
mod lists;
mod thread;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use cuguard_sync::{process, try_lock};

pub(crate) use class::{Class, LARGEST};
pub(crate) use lists::LIMIT;
use lists::{Cache, Lists};
use thread::{Home, Key};

/// What is behind the caches.
pub(crate) trait Backend: Send + Sync + 'static {
    /// A stream.
    type Stream: Clone + Send + Sync;
    /// Why there is no memory.
    type Error;

    /// A number that no other stream of the process has or had.
    fn stream_id(stream: &Self::Stream) -> u64;

    /// Allocates a block and returns its address, and adds those of up to `more` others to `out`.
    fn allocate_many(
        &self,
        stream: &Self::Stream,
        bytes: u64,
        more: usize,
        out: &mut Vec<u64>,
    ) -> Result<u64, Self::Error>;

    /// Frees blocks on a stream. Neither waits nor calls the driver.
    fn free_many(&self, stream: &Self::Stream, bytes: u64, addresses: &[u64]);
}

/// A backend and the caches of all threads in front of it.
pub(crate) struct Caches<B: Backend> {
    /// No other pool of the process has or had it.
    id: u64,
    backend: B,
    registered: Mutex<Registered<B>>,
}

struct Registered<B: Backend> {
    /// Caches whose thread has ended stay until the next one is added.
    caches: Vec<(Arc<Cache>, B::Stream)>,
    /// The pool has ended: no cache is added.
    is_closed: bool,
}

impl<B: Backend> Registered<B> {
    fn bytes(&self) -> u64 {
        self.caches.iter().map(|(cache, _)| cache.bytes()).sum()
    }
}

impl<B: Backend> Caches<B> {
    /// No caches.
    pub(crate) fn new(backend: B) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Arc::new(Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            backend,
            registered: Mutex::new(Registered {
                caches: Vec::new(),
                is_closed: false,
            }),
        })
    }

    /// What is behind the caches.
    #[inline]
    pub(crate) fn backend(&self) -> &B {
        &self.backend
    }

    #[inline]
    fn key(&self, stream: &B::Stream) -> Key {
        Key {
            pool: self.id,
            stream: B::stream_id(stream),
        }
    }

    /// A block of the class for use on the stream.
    #[inline]
    pub(crate) fn allocate(
        self: &Arc<Self>,
        stream: &B::Stream,
        class: Class,
    ) -> Result<u64, B::Error> {
        match thread::with(self.key(stream), |cache| cache.pop(class)) {
            Some(Some(address)) => Ok(address),
            _ => self.refill(stream, class),
        }
    }

    /// Frees a block on the stream.
    #[inline]
    pub(crate) fn free(self: &Arc<Self>, stream: &B::Stream, class: Class, address: u64) {
        let key = self.key(stream);
        if thread::with(key, |cache| cache.push(class, address)) != Some(true) {
            self.overflow(stream, class, address);
        }
    }

    /// Allocates a block and some more for the cache.
    #[cold]
    #[inline(never)]
    fn refill(self: &Arc<Self>, stream: &B::Stream, class: Class) -> Result<u64, B::Error> {
        let cache = self.cache(stream);
        let begun = cache.as_ref().and_then(|cache| {
            let mut lists = cache.lists.enter()?;
            Some((lists.begin_refill(class) - 1, lists.take_buffer()))
        });
        let (more, mut buffer) = begun.unwrap_or_default();
        let address = self
            .backend
            .allocate_many(stream, class.bytes(), more, &mut buffer);
        // What has no room any more, such as in a cache that has been retired meanwhile.
        let mut rest = buffer.as_slice();
        if let Some(cache) = &cache
            && let Some(mut lists) = cache.lists.enter()
        {
            let kept = rest
                .iter()
                .take_while(|address| cache.push_to(&mut lists, class, **address))
                .count();
            rest = &rest[kept..];
        }
        if !rest.is_empty() {
            self.backend.free_many(stream, class.bytes(), rest);
        }
        self.return_buffer(cache.as_deref(), buffer);
        address
    }

    /// Frees a block where the cache has no room: makes some, by a batch.
    #[cold]
    #[inline(never)]
    fn overflow(self: &Arc<Self>, stream: &B::Stream, class: Class, address: u64) {
        if process::is_forked() {
            return;
        }
        let cache = self.cache(stream);
        while let Some(cache) = &cache {
            let Some(mut lists) = cache.lists.enter() else {
                break;
            };
            if cache.push_to(&mut lists, class, address) {
                return;
            }
            let mut buffer = lists.take_buffer();
            let evicted = cache.evict(&mut lists, class, &mut buffer);
            // Now, because the backend may take a while.
            drop(lists);
            let is_done = match evicted {
                Some(other) => {
                    self.backend.free_many(stream, other.bytes(), &buffer);
                    false
                }
                None => cache.push(class, address),
            };
            self.return_buffer(Some(cache), buffer);
            match (evicted, is_done) {
                (Some(_), _) => continue,
                (None, true) => return,
                // Retired.
                (None, false) => break,
            }
        }
        self.backend.free_many(stream, class.bytes(), &[address]);
    }

    fn return_buffer(&self, cache: Option<&Cache>, buffer: Vec<u64>) {
        if let Some(mut lists) = cache.and_then(|cache| cache.lists.enter()) {
            lists.return_buffer(buffer);
        }
    }

    /// The calling thread's cache for the stream, a new one if need be. `None` if it can have none.
    fn cache(self: &Arc<Self>, stream: &B::Stream) -> Option<Arc<Cache>> {
        let key = self.key(stream);
        if let Some(cache) = thread::get(key) {
            return Some(cache);
        }
        if !thread::can_have_caches() {
            return None;
        }
        let cache = Arc::new(Cache::new());
        {
            let mut registered = self.registered();
            if registered.is_closed {
                return None;
            }
            let has_not_ended =
                |(cache, _): &(Arc<Cache>, B::Stream)| !cache.has_ended.load(Ordering::Acquire);
            let ended = registered
                .caches
                .extract_if(.., |entry| !has_not_ended(entry));
            let ended: Vec<_> = ended.collect();
            registered.caches.push((cache.clone(), stream.clone()));
            drop(registered);
            // Without the lock: a stream may be destroyed here.
            drop(ended);
        }
        let home: Weak<Self> = Arc::downgrade(self);
        if !thread::add(key, &cache, home) {
            // Empty; the next one that is added removes it.
            cache.has_ended.store(true, Ordering::Release);
            return None;
        }
        Some(cache)
    }

    /// The same, for a user that keeps it.
    pub(crate) fn thread_cache(self: &Arc<Self>, stream: &B::Stream) -> Option<ThreadCache> {
        let cache = self.cache(stream)?;
        let key = self.key(stream);
        Some(ThreadCache { cache, key })
    }

    /// Whether the cache is one of this pool.
    pub(crate) fn is_own(&self, cache: &ThreadCache) -> bool {
        cache.key.pool == self.id
    }

    /// Frees the blocks of all caches to the backend, and returns how many bytes.
    pub(crate) fn flush(&self) -> u64 {
        if process::is_forked() {
            return 0;
        }
        let caches = self.registered().caches.clone();
        caches
            .iter()
            .filter(|(cache, _)| cache.bytes() > 0)
            .map(|(cache, stream)| self.empty(cache, stream, false))
            .sum()
    }

    /// The stream ends: its caches, of all threads, are flushed and hold nothing from now on.
    pub(crate) fn stream_ends(&self, stream: &B::Stream) {
        if process::is_forked() {
            return;
        }
        let id = B::stream_id(stream);
        let of_the_stream: Vec<_> = self
            .registered()
            .caches
            .extract_if(.., |(_, other)| B::stream_id(other) == id)
            .collect();
        for (cache, stream) in &of_the_stream {
            self.empty(cache, stream, true);
        }
    }

    /// The pool ends: all caches are flushed and hold nothing from now on. No other thread is inside one of them after this,
    /// nor uses the backend because it ends.
    pub(crate) fn close(&self) {
        if process::is_forked() {
            return;
        }
        let caches = {
            let mut registered = self.registered();
            registered.is_closed = true;
            std::mem::take(&mut registered.caches)
        };
        for (cache, stream) in &caches {
            self.empty(cache, stream, true);
        }
    }

    /// What the caches hold, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.registered().bytes()
    }

    /// The same, for a thread that must not wait. `None` while another thread holds the lock.
    pub(crate) fn try_bytes(&self) -> Option<u64> {
        Some(try_lock(&self.registered)?.bytes())
    }

    /// How many caches there are, those of ended threads not counted.
    pub(crate) fn count(&self) -> usize {
        let registered = self.registered();
        let exists = |cache: &Arc<Cache>| !cache.has_ended.load(Ordering::Acquire);
        registered
            .caches
            .iter()
            .filter(|(cache, _)| exists(cache))
            .count()
    }

    /// Frees a cache's blocks to the backend, and returns how many bytes.
    fn empty(&self, cache: &Cache, stream: &B::Stream, retires: bool) -> u64 {
        // `None` in a forked child and at exit only: nothing uses the memory any more then.
        let Some(mut lists) = cache.lists.lock() else {
            return 0;
        };
        let blocks = cache.drain(&mut lists);
        if retires {
            lists.retire();
        }
        // Inside the cache, so that a stream cannot end in between: its end waits for the cache, and then the pool knows of
        // these frees. (The backend neither waits nor calls the driver to free.)
        let bytes = self.free_all(stream, &blocks);
        drop(lists);
        bytes
    }

    fn free_all(&self, stream: &B::Stream, blocks: &[(Class, Vec<u64>)]) -> u64 {
        let free = |(class, addresses): &(Class, Vec<u64>)| {
            self.backend.free_many(stream, class.bytes(), addresses);
            addresses.len() as u64 * class.bytes()
        };
        blocks.iter().map(free).sum()
    }

    fn registered(&self) -> MutexGuard<'_, Registered<B>> {
        cuguard_sync::lock(&self.registered)
    }
}

impl<B: Backend> Home for Caches<B> {
    fn thread_ends(&self, cache: &Arc<Cache>, lists: &mut Lists) {
        let stream = {
            let registered = self.registered();
            let is_it = |entry: &&(Arc<Cache>, B::Stream)| Arc::ptr_eq(&entry.0, cache);
            registered
                .caches
                .iter()
                .find(is_it)
                .map(|(_, stream)| stream.clone())
        };
        // Without one, another thread is about to empty it, because the stream or the pool ends.
        if let Some(stream) = stream {
            let blocks = cache.drain(lists);
            self.free_all(&stream, &blocks);
        }
    }
}

/// The cache of one thread and stream in front of a [`Pool`](crate::Pool): see
/// [`Pool::thread_cache`](crate::Pool::thread_cache).
///
/// It keeps neither the pool alive nor the stream. Once one of them has ended, or the thread, it is empty for good.
#[derive(Clone)]
pub struct ThreadCache {
    cache: Arc<Cache>,
    key: Key,
}

impl ThreadCache {
    /// A block of the class, on the cache's own thread, if no other one is inside.
    #[inline(always)]
    pub(crate) fn try_pop(&self, class: Class) -> Option<u64> {
        self.cache.try_pop(class)
    }

    /// Keeps a block, on the cache's own thread. False if there is no room, or if another thread is inside.
    #[inline(always)]
    pub(crate) fn try_push(&self, class: Class, address: u64) -> bool {
        self.cache.try_push(class, address)
    }
}

impl fmt::Debug for ThreadCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadCache")
            .field("pool", &self.key.pool)
            .field("stream", &self.key.stream)
            .field("bytes", &self.cache.bytes())
            .finish()
    }
}
