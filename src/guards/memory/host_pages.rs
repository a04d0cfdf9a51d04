//! Page-aligned host memory, for registration with the driver.

use std::alloc::{Layout, alloc_zeroed};
use std::ptr::NonNull;

use super::host_limit;
use crate::core::HostMemory;
use crate::error::{Error, Result};
use crate::guards::bytes_of;

const PAGE: usize = 4096;

/// Zeroed memory for `len` values. The values are not dropped: they are plain data.
#[derive(Debug)]
pub(crate) struct HostPages<T> {
    values: NonNull<[T]>,
    /// `None` if the values need no memory.
    memory: Option<HostMemory>,
}

// SAFETY: owns its memory like a boxed slice.
unsafe impl<T: Send> Send for HostPages<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for HostPages<T> {}

impl<T> HostPages<T> {
    pub(crate) fn zeroed(operation: &'static str, len: usize) -> Result<Self> {
        let bytes = bytes_of::<T>(operation, len)?;
        let pages = |start, memory| Self {
            values: NonNull::slice_from_raw_parts(start, len),
            memory,
        };
        if bytes == 0 {
            return Ok(pages(NonNull::dangling(), None));
        }
        let overflow = Error::SizeOverflow {
            operation,
            count: len,
            size: size_of::<T>(),
        };
        let layout =
            Layout::from_size_align(bytes, PAGE.max(align_of::<T>())).map_err(|_| overflow)?;
        // The driver locks every page of it.
        host_limit::check(operation, bytes)?;
        // SAFETY: the layout has at least one byte.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) });
        let start = start.ok_or_else(|| host_limit::error(operation, bytes, None))?;
        // SAFETY: allocated above with this layout; nothing else frees it.
        let memory = unsafe { HostMemory::new(start.as_ptr(), layout) };
        Ok(pages(start.cast(), Some(memory)))
    }

    /// Moves the memory out, to be freed after the driver has unregistered it. The values must not be accessed
    /// afterwards.
    pub(crate) fn take_memory(&mut self) -> Option<HostMemory> {
        self.memory.take()
    }

    pub(crate) fn as_ptr(&self) -> *mut [T] {
        self.values.as_ptr()
    }
}
