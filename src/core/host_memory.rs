//! Host memory that is registered with the driver, freed only once the driver does not use it.

use std::alloc::{Layout, dealloc};
use std::mem::ManuallyDrop;

use cuguard_sync::process;

use super::owned_resource::{OwnedResource, Released};
use crate::error::{Error, Result};

/// Memory of the global allocator whose values need no drop, freed on any thread.
#[derive(Debug)]
pub(crate) struct HostMemory {
    start: *mut u8,
    layout: Layout,
}

// SAFETY: owns its memory and gives nobody access to what is in it.
unsafe impl Send for HostMemory {}

impl HostMemory {
    /// # Safety
    ///
    /// `start` must have been allocated by the global allocator with this layout, and nobody else
    /// may free it.
    pub(crate) unsafe fn new(start: *mut u8, layout: Layout) -> Self {
        Self { start, layout }
    }

    /// The memory of a vector; none where it never allocated. `Copy` values need no drop.
    pub(crate) fn of<T: Copy>(values: Vec<T>) -> Option<Self> {
        let mut values = ManuallyDrop::new(values);
        let layout = Layout::array::<T>(values.capacity()).ok()?;
        // SAFETY: a vector allocates with this layout, unless it has no bytes; it is not used any
        // more.
        (layout.size() != 0).then(|| unsafe { Self::new(values.as_mut_ptr().cast(), layout) })
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // SAFETY: as `new` demands.
        unsafe { dealloc(self.start, self.layout) };
    }
}

/// Unregisters host memory, and frees it once the driver does not use it any more. Where the driver
/// permits no call now, both come later. Memory that the driver may still use is leaked.
pub(crate) fn release(
    mut owned: OwnedResource,
    memory: Option<HostMemory>,
    operation: &'static str,
) -> Result<()> {
    match owned.release(operation) {
        Released::Done(result) => {
            free_after(&owned, memory, &result);
            result
        }
        Released::NotNow(error) => {
            owned.defer(memory);
            Err(error)
        }
    }
}

/// Frees host memory after an attempt to unregister it.
fn free_after(owned: &OwnedResource, memory: Option<HostMemory>, released: &Result<()>) {
    let Some(memory) = memory else {
        return;
    };
    match released {
        Ok(()) => drop(memory),
        Err(Error::ContextClosed { .. }) if !process::is_exiting() => {
            let state = owned.state();
            state.unregistered.free(owned.address(), memory);
        }
        // It is still registered.
        Err(_) => std::mem::forget(memory),
    }
}

/// Frees what was [deferred](super::deferred), and the host memory that it registered.
pub(crate) fn free_deferred(owned: OwnedResource, memory: Option<HostMemory>) {
    // What the driver refuses is filed.
    let _ = release(owned, memory, "drop");
}
