//! The list of a stream's homes, which keeps each home alive between one pool block and the next.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use cuguard_sync::process;

use crate::core::shared::lock::{lock, try_lock, within_patience};

/// A [home](crate::core::owned::pool_home), as its stream knows it.
pub(in crate::core) trait StreamHome: fmt::Debug + Send + Sync {
    /// Drops the references that no block has, and keeps none from now on.
    fn end_spares(&self);
}

/// The homes of a stream.
#[derive(Debug)]
pub(crate) struct Homes {
    list: Mutex<Option<Vec<Arc<dyn StreamHome>>>>,
    /// Held while a thread drops references that no block has. So once the guard of the stream is dropped, none of them keeps
    /// the stream: the program may destroy a stream that it borrowed.
    leaving: Mutex<()>,
}

impl Homes {
    pub(in crate::core) fn new() -> Arc<Self> {
        Arc::new(Self {
            list: Mutex::new(Some(Vec::new())),
            leaving: Mutex::new(()),
        })
    }

    /// Keeps a home for the next block, and returns whether it does. Not once the guard of the stream is dropped: nothing
    /// would empty the list.
    pub(in crate::core) fn add(&self, home: Arc<dyn StreamHome>) -> bool {
        match &mut *lock(&self.list) {
            Some(list) => {
                list.push(home);
                true
            }
            None => false,
        }
    }

    /// Whether homes are kept: the guard of the stream is not dropped.
    pub(in crate::core) fn keeps(&self) -> bool {
        lock(&self.list).is_some()
    }

    /// Begins to drop references that no block has.
    pub(in crate::core) fn leave(&self) -> MutexGuard<'_, ()> {
        lock(&self.leaving)
    }

    /// The same, unless another thread does so for long.
    pub(in crate::core) fn leave_soon(&self) -> Option<MutexGuard<'_, ()>> {
        within_patience(|| try_lock(&self.leaving))
    }

    /// The guard of the stream is dropped.
    pub(crate) fn end(&self) {
        if process::is_forked() {
            // A thread that does not exist here may hold a lock.
            return;
        }
        let leaving = self.leave();
        // Without the lock of the list: a pool may be destroyed here.
        let homes = lock(&self.list).take();
        for home in homes.iter().flatten() {
            home.end_spares();
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

    pub(in crate::core) fn remove(&self, home: &dyn StreamHome) {
        let mut list = lock(&self.list);
        let removed = list.as_mut().map(|list| {
            let is_it =
                |other: &mut Arc<dyn StreamHome>| std::ptr::addr_eq(Arc::as_ptr(other), home);
            list.extract_if(.., is_it).collect::<Vec<_>>()
        });
        drop(list);
        drop(removed);
    }
}
