//! The caches of the calling thread.

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use cuguard_sync::process;

use super::lists::{Cache, Lists};

/// Which cache: a pool's and a stream's number, neither of which is ever reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) pool: u64,
    pub(crate) stream: u64,
}

/// What a cache's pool does when the cache's thread ends.
pub(crate) trait Home: Send + Sync {
    /// Empties the cache, which the caller is inside of.
    fn thread_ends(&self, cache: &Arc<Cache>, lists: &mut Lists);
}

struct Entry {
    key: Key,
    cache: Arc<Cache>,
    /// The pool may be dropped before the thread ends.
    home: Weak<dyn Home>,
}

/// How many positions are remembered.
const RECENT: usize = 16;

/// The caches of one thread, found by their key.
struct Caches {
    entries: Vec<Entry>,
    /// Where the last cache was found, by the low bits of its stream's number. Streams are numbered one after the other, so
    /// a thread that uses a few at a time finds each at once.
    recent: [Cell<u8>; RECENT],
}

thread_local! {
    static CACHES: RefCell<Caches> = const { RefCell::new(Caches {
        entries: Vec::new(),
        recent: [const { Cell::new(0) }; RECENT],
    }) };
}

impl Caches {
    #[inline]
    fn find(&self, key: Key) -> Option<&Arc<Cache>> {
        let recent = &self.recent[key.stream as usize % RECENT];
        match self.entries.get(usize::from(recent.get())) {
            Some(entry) if entry.key == key => Some(&entry.cache),
            _ => self.search(key, recent),
        }
    }

    #[inline(never)]
    fn search(&self, key: Key, recent: &Cell<u8>) -> Option<&Arc<Cache>> {
        let at = self.entries.iter().position(|entry| entry.key == key)?;
        // Positions from 256 on are searched for each time.
        recent.set(u8::try_from(at).unwrap_or(recent.get()));
        Some(&self.entries[at].cache)
    }
}

/// Calls `use_cache` with the calling thread's cache, if it has one. `None` also while the thread's locals are dropped.
#[inline]
pub(crate) fn with<R>(key: Key, use_cache: impl FnOnce(&Cache) -> R) -> Option<R> {
    CACHES
        .try_with(|caches| {
            // Not borrowed mutably while anything else runs.
            let caches = caches.try_borrow().ok()?;
            caches.find(key).map(|cache| use_cache(cache))
        })
        .ok()?
}

/// The calling thread's cache, if it has one.
pub(crate) fn get(key: Key) -> Option<Arc<Cache>> {
    let found = CACHES.try_with(|caches| caches.try_borrow().ok()?.find(key).cloned());
    found.ok()?
}

/// Whether the calling thread can have caches: not while its locals are dropped.
pub(crate) fn can_have_caches() -> bool {
    CACHES.try_with(|_| ()).is_ok()
}

/// Adds a cache of the calling thread, and removes those that are of no more use. False if the thread cannot have any.
pub(crate) fn add(key: Key, cache: &Arc<Cache>, home: Weak<dyn Home>) -> bool {
    let mut unused = Vec::new();
    let added = CACHES.try_with(|caches| {
        let Ok(mut caches) = caches.try_borrow_mut() else {
            return false;
        };
        let is_of_use = |entry: &Entry| {
            let lists = entry.cache.lists.enter();
            entry.home.strong_count() > 0 && !lists.is_some_and(|lists| lists.is_retired())
        };
        unused.extend(caches.entries.extract_if(.., |entry| !is_of_use(entry)));
        caches.entries.push(Entry {
            key,
            cache: cache.clone(),
            home,
        });
        true
    });
    // Outside of the borrow.
    drop(unused);
    added.unwrap_or(false)
}

impl Drop for Caches {
    /// The thread ends.
    fn drop(&mut self) {
        let entries = std::mem::take(&mut self.entries);
        if process::is_exiting() {
            // In a forked child, threads that do not exist there may hold the locks of the pool.
            std::mem::forget(entries);
            return;
        }
        for Entry { cache, home, .. } in entries {
            let Some(mut lists) = cache.lists.enter() else {
                continue;
            };
            // A pool that ends retires its caches, and waits until this thread is out: it is not dropped here.
            if !lists.is_retired()
                && let Some(home) = home.upgrade()
            {
                home.thread_ends(&cache, &mut lists);
            }
            drop(lists);
            cache.has_ended.store(true, Ordering::Release);
            cache.lists.release();
        }
    }
}
