//! Spare references to a home, which the next blocks reuse without changing its reference count.
//!
//! ```text
//!     allocate ◄── take ── Spares ◄── put ── free      on the home's thread
//!                            │
//!                            └──► end: dropped         on any thread
//! ```
//!
//! Changing the reference count for each block would cost two atomic read-modify-writes, a third of the time of an
//! allocation and its free. Here the count stays as it is, and the reference itself moves from block to block. The
//! thread of the home owns the [`Biased`] lock, and enters it without an atomic read-modify-write.
//!
//! A spare keeps the pool and the stream alive, as a block does. So the spares are dropped with the guard of the pool,
//! with the guard of the stream, and with the thread: see [`pool_home`](crate::core::owned::pool_home).

use std::fmt;
use std::sync::Arc;

use cuguard_sync::{Biased, process};

/// How many there are at most: as many blocks can be freed before the same number is allocated.
const MOST: usize = 16;

/// What has spares, and keeps them alive: a home.
pub(in crate::core) trait HasSpares: Sized {
    fn spares(&self) -> &Arc<Spares<Self>>;
}

/// The spares of one home. Empty when it is dropped: each refers to it.
pub(in crate::core) struct Spares<H> {
    /// Without capacity once they have ended.
    list: Biased<Vec<Arc<H>>>,
}

impl<H> fmt::Debug for Spares<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.list.fmt(f)
    }
}

impl<H: HasSpares> Spares<H> {
    /// None yet, for a home of the calling thread.
    pub(in crate::core) fn new() -> Self {
        Self {
            list: Biased::new(Vec::with_capacity(MOST)),
        }
    }

    /// A reference to the home. `None` where there is none, on another thread, and while another one ends them.
    #[inline(always)]
    pub(in crate::core) fn take(&self) -> Option<Arc<H>> {
        self.list.try_enter()?.pop()
    }

    /// Keeps a reference among the spares of its home. Returns it where there is no room, on another thread, and while another
    /// one ends them.
    #[inline(always)]
    pub(in crate::core) fn put(home: Arc<H>) -> Option<Arc<H>> {
        let spares = Arc::as_ptr(home.spares());
        // SAFETY: the home keeps its spares alive. It stays in the list, once it is there, until the guard `list` is dropped:
        // before that, no other thread gets the list. The drop writes one word of the lock as the last that it does.
        let spares = unsafe { &*spares };
        let Some(mut list) = spares.list.try_enter() else {
            return Some(home);
        };
        if list.len() == list.capacity() {
            return Some(home);
        }
        list.push(home);
        None
    }

    /// Drops them, and keeps none from now on. On any thread.
    pub(in crate::core) fn end(&self) {
        // There, a thread that does not exist may be inside.
        if process::is_forked() {
            return;
        }
        // Neither where the calling thread is inside, in a signal handler: then they stay until the process exits.
        let spares = match self.list.enter() {
            Some(mut list) => std::mem::take(&mut *list),
            None => match self.list.lock() {
                Some(mut list) => std::mem::take(&mut *list),
                None => return,
            },
        };
        // Outside of the lock: a pool may be destroyed here.
        drop(spares);
    }

    /// The thread exits: what ends the spares after this needs no `membarrier`.
    pub(in crate::core) fn thread_ends(&self) {
        self.end();
        self.list.release();
    }
}
