//! Host memory that the device copies from and to without a detour.

use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};

use bytemuck::Zeroable;
use cust::memory::DeviceCopy;

use cuguard_registry::Kind;

use super::host_pages::HostPages;
use super::registered::register;
use crate::core::OwnedResource;
use crate::core::host_memory::release;
use crate::error::Result;
use crate::guards::Context;

/// Values of type `T` in page-locked host memory. It derefs to a slice.
///
/// It is ordinary memory that is registered with the driver, so it stays valid for as long as this
/// lives, past the end of its context too.
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
#[must_use = "what is not kept is freed at once"]
pub struct PinnedBuffer<T: DeviceCopy> {
    /// Freed by hand, after the driver has let go of it.
    memory: ManuallyDrop<HostPages<T>>,
    /// `None` where no memory is needed.
    owned: Option<OwnedResource>,
}

impl<T: DeviceCopy> PinnedBuffer<T> {
    #[track_caller]
    fn allocate(operation: &'static str, context: &Context, len: usize) -> Result<Self> {
        let memory = HostPages::zeroed(operation, len)?;
        let (start, bytes) = (memory.as_ptr(), memory.bytes());
        // SAFETY: the memory is ours and outlives the claim, see `drop`.
        let owned = unsafe { register(operation, Kind::Pinned, context, start, bytes)? };
        Ok(Self {
            memory: ManuallyDrop::new(memory),
            owned,
        })
    }

    /// A copy of `values`.
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
    /// [`OutOfHostMemory`](crate::Error::OutOfHostMemory), or what the driver says; nothing stays
    /// allocated then.
    #[track_caller]
    pub fn from_slice(context: &Context, values: &[T]) -> Result<Self> {
        let buffer = Self::allocate("PinnedBuffer::from_slice", context, values.len())?;
        // SAFETY: as many values as there is room for, in memory that nobody else knows.
        unsafe {
            let to = buffer.memory.as_ptr();
            to.copy_from_nonoverlapping(values.as_ptr(), values.len());
        }
        Ok(buffer)
    }

    /// `len` values of which every byte is zero.
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
    /// [`OutOfHostMemory`](crate::Error::OutOfHostMemory), or what the driver says.
    #[track_caller]
    pub fn zeroed(context: &Context, len: usize) -> Result<Self>
    where
        T: Zeroable,
    {
        Self::allocate("PinnedBuffer::zeroed", context, len)
    }

    /// Gives the buffer a name that reports show.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let buffer = cuguard::PinnedBuffer::<u32>::zeroed(&context, 3)?.named("staging");
    /// assert_eq!(context.snapshot().live[0].label.as_deref(), Some("staging"));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use = "the buffer is handed back"]
    pub fn named(self, label: &str) -> Self {
        if let Some(owned) = &self.owned {
            owned.name(label);
        }
        self
    }

    /// Frees the memory and tells whether the driver let go of it.
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
    /// Any driver error; the memory is leaked then, as the driver may still use it. Inside a host
    /// function, `CUDA_ERROR_NOT_PERMITTED`, and the memory is freed later.
    /// [`Error::ContextClosed`](crate::Error::ContextClosed) where the context was closed first: that has
    /// freed the memory, or frees it when the close ends.
    pub fn close(mut self) -> Result<()> {
        self.release("PinnedBuffer::close")
    }

    fn release(&mut self, operation: &'static str) -> Result<()> {
        let Some(owned) = self.owned.take() else {
            // Where there is no claim there is no memory.
            return Ok(());
        };
        // SAFETY: once, as the claim was there and is taken; `self` is not used any more.
        let memory = unsafe { ManuallyDrop::take(&mut self.memory) };
        release(owned, memory.into_memory(), operation)
    }
}

impl<T: DeviceCopy> Drop for PinnedBuffer<T> {
    fn drop(&mut self) {
        // What the driver refused has been filed.
        let _ = self.release("drop");
    }
}

impl<T: DeviceCopy> Deref for PinnedBuffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the memory has this many values, all of them written (zeroed ones are valid, by
        // the bound on `zeroed`), and lives as long as `self`. Work that writes to it borrows the
        // buffer exclusively.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr(), self.memory.len()) }
    }
}

impl<T: DeviceCopy> DerefMut for PinnedBuffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and work that reads from it borrows the buffer too.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), self.memory.len()) }
    }
}
