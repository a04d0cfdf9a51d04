//! A `Home` keeps the pool and the stream of pool blocks alive, and frees these blocks.
//!
//! ```text
//!     Stream guard ─► StreamState ─► Homes ──┐
//!     OwnedResource ─────────────────────────┼─► Home ─► VirtualPool
//!     thread ─ ─ ─ ─ ─ ─ ─ (weak) ─ ─ ─ ─ ─ ─┤     ├───► StreamState
//!            └─► Spares ─────────────────────┘     └───► Spares, ThreadCache
//! ```
//!
//! Each thread has one `Home` for each pool and stream. A block has one reference to its `Home`, so two threads that
//! allocate never change the same counter. The list of a stream keeps each `Home` between one block and the next, and
//! so do the [`Spares`]. Dropping the guard of the stream or of the pool empties both, so that neither the stream nor
//! the pool outlives its last block.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::{Arc, MutexGuard, Weak};

use cuguard_sync::process;

use crate::core::owned::ownership::{Home, StreamState};
use crate::core::owned::stream_homes::{Homes, StreamHome};
use crate::core::pools::spares::{HasSpares, Spares};
use crate::core::pools::stream_id::StreamId;
use crate::core::pools::virtual_pool::{KnownHome, VirtualPool};
use crate::core::shared::context_state::ContextState;

impl fmt::Debug for Home {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} on {:?}", self.pool, self.stream.handle())
    }
}

/// A home, for those who do not keep it.
pub(in crate::core) struct WeakHome {
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

    /// The thread exits. Not if another one drops homes for long: the guard of the stream ends this one. It may be the calling
    /// thread, in a signal handler that calls `exit`.
    fn end_soon(&self) {
        if let Some(leaving) = self.homes.leave_soon() {
            self.end_under(leaving);
        }
    }

    fn end_under(&self, leaving: MutexGuard<'_, ()>) {
        // Once the guard of the stream is dropped, only blocks keep the home. One more reference would outlive the last of them.
        if self.homes.keeps()
            && let Some(home) = self.home.upgrade()
        {
            home.end();
        }
        drop(leaving);
    }
}

impl StreamHome for Home {
    fn end_spares(&self) {
        self.spares.end();
    }
}

impl HasSpares for Home {
    #[inline(always)]
    fn spares(&self) -> &Arc<Spares<Self>> {
        &self.spares
    }
}

impl KnownHome for WeakHome {
    fn is_alive(&self) -> bool {
        self.home.strong_count() > 0
    }

    fn end(&self) {
        self.end_under(self.homes.leave());
    }
}

/// A home that the thread has used.
struct Known {
    pool: u64,
    stream: u64,
    spares: Arc<Spares<Home>>,
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
    pub(in crate::core) fn known(pool: &VirtualPool, stream: &StreamState) -> Option<Arc<Self>> {
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
        let is_kept = stream.homes().add(home.clone())
            && pool.add_home(Box::new(weak()))
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
        self.stream.homes().remove(&**self);
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
    pub(in crate::core) fn allocate_cached(&self, bytes: u64) -> Option<u64> {
        self.pool.allocate_from(self.cache.as_ref()?, bytes)
    }

    /// Frees a block of this size. Never waits, and makes no driver call. The caller is inside the gate.
    #[inline(always)]
    pub(in crate::core) fn free(&self, address: u64, bytes: u64) {
        let is_cached = match &self.cache {
            Some(cache) => self.pool.free_to(cache, address, bytes),
            None => false,
        };
        if !is_cached {
            self.pool.free(&self.id(), address, bytes);
        }
    }
}
