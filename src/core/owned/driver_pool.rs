//! The state of a memory pool that its guard and its memory share: a pool must not be destroyed before its memory is
//! freed.

use std::sync::Arc;

use cuguard_driver::sys::CUmemoryPool;

use crate::core::owned::ownership::{DriverPoolState, OwnedResource};
use crate::core::release::listed_handle::ListedHandle;
use crate::core::shared::context_state::ContextState;
use crate::error::Result;

impl DriverPoolState {
    pub(crate) fn new(listed: ListedHandle, owned: OwnedResource) -> Self {
        Self { listed, owned }
    }

    pub(crate) fn handle(&self) -> CUmemoryPool {
        CUmemoryPool(self.owned.address() as usize)
    }

    pub(crate) fn state(&self) -> &Arc<ContextState> {
        self.owned.state()
    }

    /// Destroys the pool and returns the driver's error.
    #[track_caller]
    pub(crate) fn close(self, operation: &'static str) -> Result<()> {
        drop(self.listed);
        self.owned.close(operation)
    }
}
