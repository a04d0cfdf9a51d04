//! Host memory that begins on a page, for registration with the driver.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;

use super::host_limit;
use crate::core::HostMemory;
use crate::error::{Error, Result};
use crate::guards::bytes_of;

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
        host_limit::check(operation, bytes)?;
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

impl<T> Drop for HostPages<T> {
    fn drop(&mut self) {
        if let Some(layout) = self.layout {
            // SAFETY: allocated in `zeroed` with this layout.
            unsafe { dealloc(self.start.as_ptr().cast(), layout) };
        }
    }
}
