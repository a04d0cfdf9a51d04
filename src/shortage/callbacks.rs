//! The program's own way to give memory back when it runs out.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::custody::Custody;
use crate::exit;

type Callback = Arc<dyn Fn(u64) + Send + Sync>;

/// The callbacks of one context, in the order in which they came.
#[derive(Default)]
pub(crate) struct Callbacks {
    list: Mutex<List>,
}

#[derive(Default)]
struct List {
    next: u64,
    all: Vec<(u64, Callback)>,
}

impl Callbacks {
    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those that are there now. They are called without the lock.
    pub(super) fn all(&self) -> Vec<Callback> {
        let list = self.lock();
        list.all
            .iter()
            .map(|(_, callback)| callback.clone())
            .collect()
    }

    pub(super) fn count(&self) -> u64 {
        self.lock().all.len() as u64
    }

    /// Lets go of all of them. A callback may hold guards, and these hold the custody that this is
    /// in.
    pub(crate) fn clear(&self) {
        let all = std::mem::take(&mut self.lock().all);
        drop(all);
    }
}

/// A callback that gives memory back; see
/// [`Context::release_on_shortage`](crate::Context::release_on_shortage). It is called until this
/// goes.
#[must_use = "the callback is called only as long as this is kept"]
pub struct ReleaseCallback {
    custody: Weak<Custody>,
    number: u64,
}

impl ReleaseCallback {
    pub(crate) fn register(custody: &Arc<Custody>, callback: Callback) -> Self {
        let mut list = custody.callbacks.lock();
        list.next += 1;
        let number = list.next;
        list.all.push((number, callback));
        Self {
            custody: Arc::downgrade(custody),
            number,
        }
    }
}

impl fmt::Debug for ReleaseCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "release callback {}", self.number)
    }
}

impl Drop for ReleaseCallback {
    fn drop(&mut self) {
        let Some(custody) = self.custody.upgrade() else {
            return;
        };
        // In a forked child the lock may be held by a thread that is not there.
        if exit::is_forked() {
            return;
        }
        let mut list = custody.callbacks.lock();
        let place = list
            .all
            .iter()
            .position(|(number, _)| *number == self.number);
        let callback = place.map(|place| list.all.remove(place));
        // What it holds goes without the lock.
        drop(list);
        drop(callback);
    }
}
