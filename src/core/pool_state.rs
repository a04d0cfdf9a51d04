//! A memory pool as its guard and its memory share it: a pool must not be destroyed before its memory is freed.

use cuguard_registry::Key;

use super::owned_resource::OwnedResource;
use super::stream_list::Listed;
use crate::error::Result;

/// The driver's pool, destroyed when the last that shares it goes.
#[derive(Debug)]
pub(crate) struct PoolState {
    /// Dropped before the handle is destroyed.
    _listed: Listed,
    pub(crate) owned: OwnedResource,
}

impl PoolState {
    pub(crate) fn new(listed: Listed, owned: OwnedResource) -> Self {
        Self {
            _listed: listed,
            owned,
        }
    }

    /// Destroys it and returns the driver's error.
    #[track_caller]
    pub(crate) fn close(self, operation: &'static str) -> Result<()> {
        drop(self._listed);
        self.owned.close(operation)
    }

    /// The number of the driver's handle.
    pub(crate) fn key(&self) -> Key {
        self.owned.key()
    }
}
