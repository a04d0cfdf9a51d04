//! Host memory that is registered with the driver, and freed only once the driver no longer uses it.

use cuguard_sync::process;

use crate::core::owned::ownership::{OwnedResource, Released};
use crate::core::release::deferred::Deferred;
use crate::core::release::page_locked;
use crate::core::shared::unregistered::HostMemory;
use crate::error::{Error, Result};

/// Unregisters host memory and frees it once the driver no longer uses it. Where the driver permits no call now, both
/// are deferred. Memory that the driver may still use is leaked.
pub(crate) fn release(
    mut owned: OwnedResource,
    memory: Option<HostMemory>,
    operation: &'static str,
) -> Result<()> {
    // Nothing refers to the memory any more.
    page_locked::remove(owned.address());
    let result = match owned.release(operation) {
        Released::Done(result) => result,
        Released::NotPermitted(error) => {
            owned.defer(memory);
            return Err(error);
        }
    };
    match (memory, &result) {
        (None, _) => {}
        (Some(memory), Ok(())) => drop(memory),
        (Some(memory), Err(Error::ContextClosed { .. })) if !process::is_exiting() => {
            let state = owned.state();
            state.unregistered.free(owned.address(), memory);
        }
        // It is still registered.
        (Some(memory), Err(_)) => std::mem::forget(memory),
    }
    result
}

/// A free that the driver did not permit.
pub(in crate::core) struct DeferredFree {
    pub(in crate::core) owned: OwnedResource,
    pub(in crate::core) memory: Option<HostMemory>,
}

impl Deferred for DeferredFree {
    fn run(self: Box<Self>) {
        // A failed free is recorded.
        drop(release(self.owned, self.memory, "drop"));
    }

    fn abandon(self: Box<Self>) {
        // The device may still use it.
        std::mem::forget(self.memory);
        // Marks its record and those of what it keeps alive as deferred.
        drop(self.owned);
    }
}
