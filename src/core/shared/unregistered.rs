//! Registered host memory of a context that is closed.
//!
//! Such memory may be freed once the driver no longer uses it: once teardown has unregistered it, or has destroyed the
//! driver's context. If an owner drops the memory while a teardown runs, that teardown frees it: the owner may be a
//! host function that the teardown waits for, and so the owner must not wait.

use std::alloc::{Layout, dealloc};
use std::collections::HashSet;
use std::mem::ManuallyDrop;
use std::sync::{Mutex, MutexGuard};

use crate::core::shared::lock::lock;

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

/// The host memory that teardown has unregistered.
#[derive(Debug, Default)]
pub(crate) struct Unregistered(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    addresses: HashSet<u64>,
    /// The driver's context is destroyed, and every registration with it.
    all: bool,
    /// Dropped while teardown runs.
    dropped: Vec<(u64, HostMemory)>,
    /// Teardown is done.
    is_final: bool,
}

impl State {
    fn contains(&self, address: u64) -> bool {
        self.all || self.addresses.contains(&address)
    }

    /// Frees memory, or leaks it if the driver may still use it.
    fn free(&self, address: u64, memory: HostMemory) {
        if !self.contains(address) {
            std::mem::forget(memory);
        }
    }
}

impl Unregistered {
    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.0)
    }

    /// Teardown has unregistered this memory.
    pub(crate) fn add(&self, address: u64) {
        self.lock().addresses.insert(address);
    }

    /// Teardown has destroyed the driver's context.
    pub(crate) fn add_all(&self) {
        self.lock().all = true;
    }

    /// Teardown is done: frees what was dropped meanwhile.
    pub(crate) fn finish(&self) {
        let mut state = self.lock();
        state.is_final = true;
        for (address, memory) in std::mem::take(&mut state.dropped) {
            state.free(address, memory);
        }
    }

    /// Whether memory may be freed, once teardown is done.
    pub(crate) fn contains(&self, address: u64) -> bool {
        self.lock().contains(address)
    }

    /// Frees memory of a closed context as soon as that is safe.
    pub(crate) fn free(&self, address: u64, memory: HostMemory) {
        let mut state = self.lock();
        if state.is_final {
            state.free(address, memory);
        } else {
            state.dropped.push((address, memory));
        }
    }
}
