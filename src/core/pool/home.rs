//! What a block of a pool keeps alive, and where it is freed: its pool and its stream.
//!
//! ```text
//!     Stream guard ─► StreamState ─► Homes ──┐
//!     OwnedResource ─────────────────────────┼─► Home ─► VirtualPool
//!     thread ─ ─ ─ ─ ─ ─ ─ (weak) ─ ─ ─ ─ ─ ─┘     └───► StreamState
//! ```
//!
//! There is one for each thread, pool and stream. A block counts as one reference to it, and no two threads that
//! allocate change the same counter. The list of a stream keeps them between one block and the next; it is emptied when
//! the guard of the stream or of the pool is dropped, so that neither outlives its last block.

use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Mutex, Weak};

use cuguard_sync::process;

use super::stream_id::StreamId;
use super::virtual_pool::VirtualPool;
use crate::core::context_state::ContextState;
use crate::core::lock::lock;
use crate::core::stream_state::StreamState;

/// A pool and a stream, for the blocks of one thread.
pub(crate) struct Home {
    /// Dropped first: the stream may be the last reference that keeps the context open.
    pool: Arc<VirtualPool>,
    stream: Arc<StreamState>,
}

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} on {:?}", self.pool, self.stream.handle())
    }
}

/// The homes of a stream.
#[derive(Debug)]
pub(crate) struct Homes(Mutex<Option<Vec<Arc<Home>>>>);

impl Default for Homes {
    fn default() -> Self {
        Self(Mutex::new(Some(Vec::new())))
    }
}

impl Homes {
    /// Keeps a home for the next block. Not once the guard of the stream is dropped: nothing would empty the list.
    fn add(&self, home: &Arc<Home>) {
        if let Some(list) = &mut *lock(&self.0) {
            list.push(home.clone());
        }
    }

    /// The guard of the stream is dropped.
    pub(crate) fn end(&self) {
        if process::is_forked() {
            // A thread that does not exist here may hold the lock.
            return;
        }
        // Dropped without the lock: a pool may be destroyed here.
        let homes = lock(&self.0).take();
        drop(homes);
    }

    /// The guard of the stream exists after all.
    pub(crate) fn begin(&self) {
        lock(&self.0).get_or_insert_default();
    }

    /// The guard of a pool is dropped.
    fn remove(&self, home: &Arc<Home>) {
        let mut list = lock(&self.0);
        let removed = list.as_mut().map(|list| {
            let is_other = |other: &mut Arc<Home>| Arc::ptr_eq(other, home);
            list.extract_if(.., is_other).collect::<Vec<_>>()
        });
        drop(list);
        drop(removed);
    }
}

/// A home that the thread has used.
struct Known {
    pool: u64,
    stream: u64,
    home: Weak<Home>,
}

/// The homes of a thread.
struct KnownHomes(Vec<Known>);

impl Drop for KnownHomes {
    fn drop(&mut self) {
        // In a forked child a thread that does not exist may hold a lock.
        if process::is_exiting() {
            return;
        }
        // The thread exits, and allocates no more: no stream keeps them for it.
        for home in self.0.iter().filter_map(|one| one.home.upgrade()) {
            home.end();
        }
    }
}

thread_local! {
    static KNOWN: RefCell<KnownHomes> = const { RefCell::new(KnownHomes(Vec::new())) };
}

impl Home {
    /// The home of the calling thread's blocks of this pool and stream.
    #[inline]
    pub(crate) fn find(pool: &Arc<VirtualPool>, stream: &Arc<StreamState>) -> Arc<Self> {
        let (number, on) = (pool.number(), stream.id().number);
        let found = KNOWN.try_with(|known| {
            let known = known.try_borrow().ok()?;
            // A thread has few; the rest is for `find_slowly`, which moves one to the front.
            let mut first = known.0.iter().take(4);
            let known = first.find(|one| one.pool == number && one.stream == on)?;
            known.home.upgrade()
        });
        match found {
            Ok(Some(home)) => home,
            _ => Self::find_slowly(pool, stream),
        }
    }

    #[cold]
    #[inline(never)]
    fn find_slowly(pool: &Arc<VirtualPool>, stream: &Arc<StreamState>) -> Arc<Self> {
        let (number, on) = (pool.number(), stream.id().number);
        let found = KNOWN.try_with(|known| {
            let mut known = known.try_borrow_mut().ok()?;
            known.0.retain(|one| one.home.strong_count() > 0);
            let is_it = |one: &Known| one.pool == number && one.stream == on;
            let at = known.0.iter().position(is_it)?;
            known.0.swap(0, at);
            known.0[0].home.upgrade()
        });
        if let Ok(Some(home)) = found {
            return home;
        }
        let home = Arc::new(Self {
            pool: pool.clone(),
            stream: stream.clone(),
        });
        if pool.add_home(&home) {
            stream.homes().add(&home);
        }
        // Fails where the thread exits: then the home has one block.
        let _ = KNOWN.try_with(|known| {
            if let Ok(mut known) = known.try_borrow_mut() {
                let one = Known {
                    pool: number,
                    stream: on,
                    home: Arc::downgrade(&home),
                };
                known.0.insert(0, one);
            }
        });
        home
    }

    /// The guard of the pool is dropped: the stream does not keep this for more blocks.
    pub(super) fn end(self: &Arc<Self>) {
        self.stream.homes().remove(self);
    }

    #[inline]
    pub(crate) fn pool(&self) -> &Arc<VirtualPool> {
        &self.pool
    }

    #[inline]
    pub(crate) fn stream(&self) -> &Arc<StreamState> {
        &self.stream
    }

    #[inline]
    pub(crate) fn state(&self) -> &Arc<ContextState> {
        self.stream.state()
    }

    #[inline]
    pub(crate) fn id(&self) -> StreamId {
        self.stream.id()
    }
}
