//! The watches of a registry: who asked for a peak, and what they have seen.

use std::sync::{Arc, Mutex, MutexGuard};

use crate::snapshot::Snapshot;

/// Set in the level of a registry while a peak is watched.
pub(crate) const WATCHED: u8 = 0x80;

/// All watches of one registry.
#[derive(Debug, Default)]
pub(crate) struct Watches(Mutex<Vec<Arc<Watch>>>);

#[derive(Debug)]
pub(crate) struct Watch {
    /// What is alive is kept at a peak of this many bytes or more.
    pub(crate) limit: u64,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
pub(crate) struct Seen {
    pub(crate) peak: u64,
    /// The bytes of the snapshot.
    pub(crate) copied: u64,
    pub(crate) snapshot: Option<Snapshot>,
}

impl Watches {
    pub(crate) fn list(&self) -> MutexGuard<'_, Vec<Arc<Watch>>> {
        cuguard_sync::lock(&self.0)
    }
}

impl Watch {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            limit,
            seen: Mutex::default(),
        }
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        cuguard_sync::lock(&self.seen)
    }
}
