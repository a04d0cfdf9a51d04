//! A cache that its user keeps, and need not look for.

use std::fmt;
use std::sync::Arc;

use super::class::Class;
use super::lists::Cache;
use super::thread::Key;

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
    pub(super) fn new(cache: Arc<Cache>, key: Key) -> Self {
        Self { cache, key }
    }

    /// The number of its pool.
    pub(super) fn pool(&self) -> u64 {
        self.key.pool
    }

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
