//! What a block of a pool keeps alive, and where it is freed: its pool and its stream.
//!
//! ```text
//!     Stream guard ─► StreamState ─► Homes ──┐
//!     OwnedResource ─────────────────────────┼─► Home ─► VirtualPool
//!     thread ─ ─ ─ ─ ─ ─ ─ (weak) ─ ─ ─ ─ ─ ─┤     ├───► StreamState
//!            └─► Spares ─────────────────────┘     └───► Spares, ThreadCache
//! ```
//!
//! There is one for each thread, pool and stream. A block has one reference to it, and no two threads that allocate change
//! the same counter. The list of a stream keeps them between one block and the next, and so do the [`Spares`]; both are
//! emptied when the guard of the stream or of the pool is dropped, so that neither outlives its last block.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use cuguard_pool::ThreadCache;
use cuguard_sync::process;

use super::context_state::ContextState;
use super::lock::{lock, try_lock, within_patience};
use super::pool_spares::Spares;
use super::pool_stream::StreamId;
use super::stream_state::StreamState;
use super::virtual_pool::VirtualPool;

/// A pool and a stream, for the blocks of one thread.
pub(crate) struct Home {
    /// Dropped first: the stream may be the last reference that keeps the context open.
    pool: Arc<VirtualPool>,
    stream: Arc<StreamState>,
    /// The stream's, one load nearer.
    state: Arc<ContextState>,
    /// Where the thread's freed blocks are. `None` where the thread has no caches.
    cache: Option<ThreadCache>,
    /// Shared with the thread, which finds a reference to this there.
    spares: Arc<Spares>,
}

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} on {:?}", self.pool, self.stream.handle())
    }
}

/// The homes of a stream.
#[derive(Debug)]
pub(crate) struct Homes {
    list: Mutex<Option<Vec<Arc<Home>>>>,
    /// Held while a thread drops references that no block has. So once the guard of the stream is dropped, none of them keeps
    /// the stream: the program may destroy a stream that it borrowed.
    leaving: Mutex<()>,
}

impl Homes {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            list: Mutex::new(Some(Vec::new())),
            leaving: Mutex::new(()),
        })
    }

    /// Keeps a home for the next block, and returns whether it does. Not once the guard of the stream is dropped: nothing
    /// would empty the list.
    fn add(&self, home: &Arc<Home>) -> bool {
        match &mut *lock(&self.list) {
            Some(list) => {
                list.push(home.clone());
                true
            }
            None => false,
        }
    }

    /// The guard of the stream is dropped.
    pub(crate) fn end(&self) {
        if process::is_forked() {
            // A thread that does not exist here may hold a lock.
            return;
        }
        let leaving = lock(&self.leaving);
        // Without the lock of the list: a pool may be destroyed here.
        let homes = lock(&self.list).take();
        for home in homes.iter().flatten() {
            home.spares.end();
        }
        drop(homes);
        drop(leaving);
    }

    /// The guard of the stream exists after all.
    pub(crate) fn begin(&self) {
        // A thread that does not exist in the child may hold the lock.
        if process::is_forked() {
            return;
        }
        lock(&self.list).get_or_insert_default();
    }

    fn remove(&self, home: &Arc<Home>) {
        let mut list = lock(&self.list);
        let removed = list.as_mut().map(|list| {
            let is_other = |other: &mut Arc<Home>| Arc::ptr_eq(other, home);
            list.extract_if(.., is_other).collect::<Vec<_>>()
        });
        drop(list);
        drop(removed);
    }
}

/// A home, for those who do not keep it.
pub(super) struct WeakHome {
    home: Weak<Home>,
    /// Those of its stream.
    homes: Arc<Homes>,
}

impl WeakHome {
    fn of(home: &Arc<Home>) -> Self {
        Self {
            home: Arc::downgrade(home),
            homes: home.stream.homes().clone(),
        }
    }

    pub(super) fn is_alive(&self) -> bool {
        self.home.strong_count() > 0
    }

    /// The guard of the pool is dropped: nothing keeps the home for more blocks. Not in a forked child.
    pub(super) fn end(&self) {
        self.end_under(lock(&self.homes.leaving));
    }

    /// The thread exits. Not if another one drops homes for long: the guard of the stream ends this one. It may be the calling
    /// thread, in a signal handler that calls `exit`.
    fn end_soon(&self) {
        if let Some(leaving) = within_patience(|| try_lock(&self.homes.leaving)) {
            self.end_under(leaving);
        }
    }

    fn end_under(&self, leaving: MutexGuard<'_, ()>) {
        // Once the guard of the stream is dropped, only blocks keep the home. One more reference would outlive the last of them.
        let is_kept = lock(&self.homes.list).is_some();
        if is_kept && let Some(home) = self.home.upgrade() {
            home.end();
        }
        drop(leaving);
    }
}

/// A home that the thread has used.
struct Known {
    pool: u64,
    stream: u64,
    spares: Arc<Spares>,
    weak: WeakHome,
}

impl Known {
    #[inline]
    fn is(&self, pool: &VirtualPool, stream: &StreamState) -> bool {
        self.pool == pool.number() && self.stream == stream.id().number
    }

    /// A reference to the home, if it is alive.
    #[inline]
    fn get(&self) -> Option<Arc<Home>> {
        self.spares.take().or_else(|| self.weak.home.upgrade())
    }
}

/// The homes of a thread.
struct KnownHomes {
    all: Vec<Known>,
    /// Where a home was found last, by the low bits of its stream's number. Streams are numbered one after the other, so a
    /// thread that uses a few at a time finds each at once.
    recent: [Cell<u8>; RECENT],
}

/// How many positions are remembered.
const RECENT: usize = 16;

impl KnownHomes {
    #[inline(always)]
    fn find(&self, pool: &VirtualPool, stream: &StreamState) -> Option<&Known> {
        let recent = &self.recent[stream.id().number as usize % RECENT];
        match self.all.get(usize::from(recent.get())) {
            Some(known) if known.is(pool, stream) => Some(known),
            _ => self.search(pool, stream),
        }
    }

    #[inline(never)]
    fn search(&self, pool: &VirtualPool, stream: &StreamState) -> Option<&Known> {
        let at = self.all.iter().position(|one| one.is(pool, stream))?;
        // Positions from 256 on are searched for each time.
        let recent = &self.recent[stream.id().number as usize % RECENT];
        recent.set(u8::try_from(at).unwrap_or(recent.get()));
        Some(&self.all[at])
    }
}

impl Drop for KnownHomes {
    fn drop(&mut self) {
        // In a forked child a thread that does not exist may hold a lock.
        if process::is_exiting() {
            return;
        }
        // The thread exits, and allocates no more: no stream keeps them for it.
        for known in &self.all {
            known.weak.end_soon();
            known.spares.thread_ends();
        }
    }
}

thread_local! {
    static KNOWN: RefCell<KnownHomes> = const { RefCell::new(KnownHomes {
        all: Vec::new(),
        recent: [const { Cell::new(0) }; RECENT],
    }) };
}

/// Adds a home to those of the calling thread, and returns whether it could.
fn remember(one: Known) -> bool {
    let remembered = KNOWN.try_with(|known| {
        let mut known = known.try_borrow_mut().ok()?;
        known.all.retain(|one| one.weak.is_alive());
        known.all.push(one);
        Some(())
    });
    matches!(remembered, Ok(Some(())))
}

impl Home {
    /// The home of the calling thread's blocks of this pool and stream, if it has one. On the hot path of every allocation
    /// from a pool.
    #[inline(always)]
    pub(super) fn known(pool: &VirtualPool, stream: &StreamState) -> Option<Arc<Self>> {
        // The address alone: a longer closure may be compiled as a function of its own.
        let known = KNOWN.try_with(std::ptr::from_ref).ok()?;
        // SAFETY: it is dropped when this thread exits, which is not before this returns.
        let known = unsafe { &*known };
        known.try_borrow().ok()?.find(pool, stream)?.get()
    }

    /// The end of a block: the next one of the same thread gets the reference.
    #[inline(always)]
    pub(crate) fn put(home: Arc<Self>) {
        // Where it is not kept, the count changes.
        drop(Spares::put(home));
    }

    #[inline]
    pub(super) fn spares(&self) -> &Arc<Spares> {
        &self.spares
    }

    /// The home of the calling thread's blocks of this pool and stream.
    pub(crate) fn find(pool: &Arc<VirtualPool>, stream: &Arc<StreamState>) -> Arc<Self> {
        Self::known(pool, stream).unwrap_or_else(|| Self::new(pool, stream))
    }

    /// A new one.
    #[cold]
    fn new(pool: &Arc<VirtualPool>, stream: &Arc<StreamState>) -> Arc<Self> {
        let home = Arc::new(Self {
            pool: pool.clone(),
            stream: stream.clone(),
            state: stream.state().clone(),
            cache: pool.thread_cache(&stream.id()),
            spares: Arc::new(Spares::new()),
        });
        let weak = || WeakHome::of(&home);
        // The stream's list first: a guard of the pool that is dropped meanwhile finds the home there.
        let is_kept = stream.homes().add(&home)
            && pool.add_home(weak())
            // Fails where the thread exits.
            && remember(Known {
                pool: pool.number(),
                stream: stream.id().number,
                spares: home.spares.clone(),
                weak: weak(),
            });
        if !is_kept {
            // It has one block: nothing would end it later.
            home.end();
        }
        home
    }

    /// Nothing keeps it for more blocks.
    fn end(self: &Arc<Self>) {
        self.spares.end();
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
        &self.state
    }

    #[inline]
    pub(crate) fn id(&self) -> StreamId {
        self.stream.id()
    }

    /// The address of a block that the thread's cache has. The caller is inside the gate.
    #[inline(always)]
    pub(super) fn allocate_cached(&self, bytes: u64) -> Option<u64> {
        self.pool.allocate_from(self.cache.as_ref()?, bytes)
    }

    /// Frees a block of this size. Never waits, and makes no driver call. The caller is inside the gate.
    #[inline(always)]
    pub(super) fn free(&self, address: u64, bytes: u64) {
        let is_cached = match &self.cache {
            Some(cache) => self.pool.free_to(cache, address, bytes),
            None => false,
        };
        if !is_cached {
            self.pool.free(&self.id(), address, bytes);
        }
    }
}
