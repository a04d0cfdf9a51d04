//! Host memory that begins on a page, for registration with the driver.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use crate::error::{Error, Result};
use crate::memory::device_buffer::bytes_of;
use crate::memory::host_memory;

const PAGE: usize = 4096;

/// Zeroed memory for `len` values. It does not drop values: they are plain data.
#[derive(Debug)]
pub(crate) struct HostPages<T> {
    start: NonNull<T>,
    len: usize,
    /// `None` where no memory is needed.
    layout: Option<Layout>,
}

// SAFETY: owns its memory like a boxed slice.
unsafe impl<T: Send> Send for HostPages<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for HostPages<T> {}

impl<T> HostPages<T> {
    pub(crate) fn zeroed(operation: &'static str, len: usize) -> Result<Self> {
        let bytes = bytes_of::<T>(operation, len)?;
        let none = Self {
            start: NonNull::dangling(),
            len,
            layout: None,
        };
        if bytes == 0 {
            return Ok(none);
        }
        let overflow = Error::SizeOverflow {
            operation,
            count: len,
            size: size_of::<T>(),
        };
        let layout =
            Layout::from_size_align(bytes, PAGE.max(align_of::<T>())).map_err(|_| overflow)?;
        // The driver locks every page of it.
        host_memory::check(operation, bytes)?;
        // SAFETY: the layout has at least one byte.
        let start = unsafe { alloc_zeroed(layout) };
        match NonNull::new(start.cast()) {
            Some(start) => Ok(Self {
                start,
                layout: Some(layout),
                ..none
            }),
            None => Err(Error::OutOfHostMemory {
                operation,
                bytes: bytes as u64,
                limit: None,
            }),
        }
    }

    /// The memory, whatever is in it.
    pub(crate) fn into_memory(self) -> Option<HostMemory> {
        let this = ManuallyDrop::new(self);
        // SAFETY: allocated in `zeroed` with this layout; `this` is never dropped.
        this.layout
            .map(|layout| unsafe { HostMemory::new(this.start.as_ptr().cast(), layout) })
    }

    pub(crate) fn as_ptr(&self) -> *mut T {
        self.start.as_ptr()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn bytes(&self) -> usize {
        self.layout.map_or(0, |layout| layout.size())
    }
}

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
    unsafe fn new(start: *mut u8, layout: Layout) -> Self {
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

impl<T> Drop for HostPages<T> {
    fn drop(&mut self) {
        if let Some(layout) = self.layout {
            // SAFETY: allocated in `zeroed` with this layout.
            unsafe { dealloc(self.start.as_ptr().cast(), layout) };
        }
    }
}
