//! The state of a memory pool that its guard and its memory share: a pool must not be destroyed before its memory is
//! freed.

use super::handle_list::ListedHandle;
use super::owned_resource::OwnedResource;
use crate::error::Result;

/// The driver's pool, destroyed with the last reference.
#[derive(Debug)]
pub(crate) struct PoolState {
    /// Dropped before the handle is destroyed.
    listed: ListedHandle,
    pub(crate) owned: OwnedResource,
}

impl PoolState {
    pub(crate) fn new(listed: ListedHandle, owned: OwnedResource) -> Self {
        Self { listed, owned }
    }

    /// Destroys the pool and returns the driver's error.
    #[track_caller]
    pub(crate) fn close(self, operation: &'static str) -> Result<()> {
        drop(self.listed);
        self.owned.close(operation)
    }
}
