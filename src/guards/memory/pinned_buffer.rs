//! Page-locked host memory.

use std::ops::{Deref, DerefMut};

use bytemuck::Zeroable;
use cust_core::DeviceCopy;

use cuguard_registry::ResourceKind;

use super::host_pages::HostPages;
use super::registered::register;
use crate::core::OwnedResource;
use crate::core::host_memory::release;
use crate::error::Result;
use crate::guards::Context;

/// Values of type `T` in page-locked (pinned) host memory, freed on drop. Dereferences to a slice.
///
/// The memory is allocated by Rust and registered with the driver, so it stays valid until this is dropped, even after
/// its context is closed. Parts of it are slices: `&buffer[1..3]` is a source or destination of copies of views and
/// scopes.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, PinnedBuffer};
///
/// let context = Context::new(0)?;
/// let mut buffer = PinnedBuffer::from_slice(&context, &[1, 2, 3])?;
/// buffer[0] = 10;
/// context.close()?;
/// assert_eq!(*buffer, [10, 2, 3]);
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "dropped at once if unused"]
#[doc(alias("LockedBuffer", "PinnedHostSlice", "cuMemAllocHost", "cudaMallocHost"))]
pub struct PinnedBuffer<T: DeviceCopy> {
    memory: HostPages<T>,
    /// `None` if the values need no memory.
    owned: Option<OwnedResource>,
}

impl<T: DeviceCopy> PinnedBuffer<T> {
    #[track_caller]
    fn allocate(operation: &'static str, context: &Context, len: usize) -> Result<Self> {
        let memory = HostPages::zeroed(operation, len)?;
        // SAFETY: `release` frees the memory after the driver has unregistered it.
        let owned = unsafe { register(operation, ResourceKind::Pinned, context, memory.as_ptr())? };
        Ok(Self { memory, owned })
    }

    /// Copies `values` to a new allocation.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let buffer = cuguard::PinnedBuffer::from_slice(&context, &[1, 2, 3])?;
    /// assert_eq!(*buffer, [1, 2, 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`OutOfHostMemory`](crate::Error::OutOfHostMemory), or any other driver error. Nothing stays
    /// allocated.
    #[track_caller]
    pub fn from_slice(context: &Context, values: &[T]) -> Result<Self> {
        let buffer = Self::allocate("PinnedBuffer::from_slice", context, values.len())?;
        // SAFETY: the new allocation has room for `values`, and nothing else refers to it.
        unsafe {
            let to = buffer.memory.as_ptr().cast::<T>();
            to.copy_from_nonoverlapping(values.as_ptr(), values.len());
        }
        Ok(buffer)
    }

    /// Allocates `len` values and sets every byte to zero.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let buffer = cuguard::PinnedBuffer::<u32>::zeroed(&context, 3)?;
    /// assert_eq!(*buffer, [0, 0, 0]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`SizeOverflow`](crate::Error::SizeOverflow),
    /// [`OutOfHostMemory`](crate::Error::OutOfHostMemory), or any other driver error.
    #[track_caller]
    pub fn zeroed(context: &Context, len: usize) -> Result<Self>
    where
        T: Zeroable,
    {
        Self::allocate("PinnedBuffer::zeroed", context, len)
    }

    /// `None` where there are no bytes.
    pub(crate) fn owned(&self) -> Option<&OwnedResource> {
        self.owned.as_ref()
    }

    /// Names the buffer in reports.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let buffer = cuguard::PinnedBuffer::<u32>::zeroed(&context, 3)?.with_label("staging");
    /// assert_eq!(context.snapshot().live[0].label.as_deref(), Some("staging"));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use = "returns the guard"]
    pub fn with_label(self, label: &str) -> Self {
        if let Some(owned) = &self.owned {
            owned.name(label);
        }
        self
    }

    /// Unregisters and frees the memory, and returns the driver's error, if any. A failed call is in the report, by
    /// `close` or by drop.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let buffer = cuguard::PinnedBuffer::<u32>::zeroed(&context, 3)?;
    /// buffer.close()?;
    /// assert_eq!(context.live_bytes(), 0);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`](crate::Error::ContextClosed) if the context was closed first: the memory is freed, or
    /// will be when the close ends. `CUDA_ERROR_NOT_PERMITTED` inside a host function: the memory is freed later. Any
    /// other driver error: the memory is leaked, because the driver may still access it.
    pub fn close(mut self) -> Result<()> {
        self.release("PinnedBuffer::close")
    }

    fn release(&mut self, operation: &'static str) -> Result<()> {
        match self.owned.take() {
            Some(owned) => release(owned, self.memory.take_memory(), operation),
            None => Ok(()),
        }
    }
}

impl<T: DeviceCopy> Drop for PinnedBuffer<T> {
    fn drop(&mut self) {
        // A failed free is already recorded.
        let _ = self.release("drop");
    }
}

impl<T: DeviceCopy> Deref for PinnedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the memory has `len` initialized values (zeroed ones are valid: `zeroed` requires `Zeroable`) and
        // lives as long as `self`. Work that writes to it borrows the buffer exclusively.
        unsafe { &*self.memory.as_ptr() }
    }
}

impl<T: DeviceCopy> DerefMut for PinnedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and work that reads it borrows the buffer too.
        unsafe { &mut *self.memory.as_ptr() }
    }
}
