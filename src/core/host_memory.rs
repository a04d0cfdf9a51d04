//! Host memory that is registered with the driver, and freed only once the driver no longer uses it.

use std::alloc::{Layout, dealloc};
use std::mem::ManuallyDrop;

use cuguard_sync::process;

use super::owned_resource::{OwnedResource, Released};
use super::page_locked;
use crate::error::{Error, Result};

/// A block of the global allocator, without values to drop.
#[derive(Debug)]
pub(crate) struct HostMemory {
    start: *mut u8,
    layout: Layout,
}

// SAFETY: owns its memory and gives no access to its contents.
unsafe impl Send for HostMemory {}

impl HostMemory {
    /// # Safety
    ///
    /// `start` was allocated by the global allocator with this layout, and nothing else frees it.
    pub(crate) unsafe fn new(start: *mut u8, layout: Layout) -> Self {
        Self { start, layout }
    }

    /// The memory of a vector; `None` if it never allocated. `Copy` values need no drop.
    pub(crate) fn of<T: Copy>(values: Vec<T>) -> Option<Self> {
        let mut values = ManuallyDrop::new(values);
        let layout = Layout::array::<T>(values.capacity()).ok()?;
        // SAFETY: a vector with bytes allocates with this layout; it is not used any more.
        (layout.size() != 0).then(|| unsafe { Self::new(values.as_mut_ptr().cast(), layout) })
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // SAFETY: as `new` requires.
        unsafe { dealloc(self.start, self.layout) };
    }
}

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
