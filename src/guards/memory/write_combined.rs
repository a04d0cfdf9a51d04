//! Write-combined page-locked host memory.

use bytemuck::Zeroable;
use cuguard_driver::result::memory;
use cuguard_driver::sys::flags;
use cust_core::DeviceCopy;

use super::driver_memory::DriverMemory;
use super::host_limit;
use crate::core::OwnedResource;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
#[cfg(doc)]
use crate::guards::PinnedBuffer;
use crate::guards::{Context, bytes_of, check_len};
use cuguard_registry::{Entry, Key, ResourceKind};

/// Values of type `T` in write-combined page-locked host memory (`CU_MEMHOSTALLOC_WRITECOMBINED`). Freed on drop.
///
/// The host's caches do not keep it: writes are collected and written out in bursts, and copies to the device do not snoop
/// the caches, so that uploads over PCIe can be faster. **Reads by the host are very slow**, uncached and one by one:
/// write it front to back, and use a [`PinnedBuffer`] for what the host reads.
///
/// The driver allocates this memory and frees it when the context is closed, unlike that of a [`PinnedBuffer`]. So the
/// host accesses it through a borrow of the context, as with a [`ManagedBuffer`](crate::ManagedBuffer).
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::memory::WriteCombinedBuffer;
/// use cuguard::{Context, DeviceBuffer, Stream};
///
/// let context = Context::new(0)?;
/// let stream = Stream::new(&context)?;
/// let mut staging = WriteCombinedBuffer::<u32>::zeroed(&context, 3)?;
/// let mut buffer = DeviceBuffer::zeroed(&context, 3)?;
/// for round in 0..2 {
///     staging.copy_from_slice(&[round, round + 1, round + 2])?;
///     let staged = staging.as_slice(&context)?;
///     stream.scope(|s| s.upload(&mut s.bind_mut(&mut buffer)?, &s.bind_host(staged)))?;
/// }
/// assert_eq!(buffer.to_vec()?, [1, 2, 3]);
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "dropped at once if unused"]
#[doc(alias("cuMemHostAlloc", "alloc_pinned"))]
pub struct WriteCombinedBuffer<T: DeviceCopy> {
    memory: DriverMemory<T>,
}

impl<T: DeviceCopy> WriteCombinedBuffer<T> {
    #[track_caller]
    fn allocate(operation: &'static str, context: &Context, len: usize) -> Result<Self> {
        let bytes = bytes_of::<T>(operation, len)?;
        // The driver locks every page of it.
        host_limit::check(operation, bytes)?;
        let entered = context.state().enter_to_wait(operation)?;
        let owner = context.open().into();
        if bytes == 0 {
            let owned = OwnedResource::nothing(owner, ResourceKind::WriteCombined);
            let memory = DriverMemory::new(operation, len, owned)?;
            return Ok(Self { memory });
        }
        let flags = flags::MEMHOSTALLOC_WRITECOMBINED | flags::MEMHOSTALLOC_PORTABLE;
        let start = entered.check_bytes(memory::host_alloc(bytes, flags), bytes)?;
        let entry = Entry {
            bytes: bytes as u64,
            type_name: std::any::type_name::<T>(),
            stream: 0,
        };
        let key = Key::new(
            ResourceKind::WriteCombined,
            start.expose_provenance() as u64,
        );
        let owned = OwnedResource::new(owner, key, entry);
        let memory = DriverMemory::new(operation, len, owned)?;
        Ok(Self { memory })
    }

    /// Copies `values` to a new allocation.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let buffer = cuguard::memory::WriteCombinedBuffer::from_slice(&context, &[1, 2, 3])?;
    /// assert_eq!(buffer.as_slice(&context)?, [1, 2, 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::OutOfHostMemory`], [`Error::Misaligned`] if the driver's address is not aligned for `T`, or any other
    /// driver error. Nothing stays allocated.
    #[track_caller]
    pub fn from_slice(context: &Context, values: &[T]) -> Result<Self> {
        let buffer = Self::allocate("WriteCombinedBuffer::from_slice", context, values.len())?;
        // SAFETY: the new allocation is aligned, has room for all values, and nothing else refers to it. The context is
        // borrowed.
        unsafe {
            let to = buffer.memory.start();
            to.copy_from_nonoverlapping(values.as_ptr(), values.len());
        }
        Ok(buffer)
    }

    /// Allocates `len` values and sets every byte to zero.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let buffer = cuguard::memory::WriteCombinedBuffer::<u32>::zeroed(&context, 3)?;
    /// assert_eq!(buffer.as_slice(&context)?, [0, 0, 0]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::SizeOverflow`]; else as [`from_slice`](Self::from_slice).
    #[track_caller]
    pub fn zeroed(context: &Context, len: usize) -> Result<Self>
    where
        T: Zeroable,
    {
        let buffer = Self::allocate("WriteCombinedBuffer::zeroed", context, len)?;
        // SAFETY: as in `from_slice`.
        unsafe { buffer.memory.start().write_bytes(0, len) };
        Ok(buffer)
    }

    /// Copies `values` to the buffer, which must have the same length, front to back.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let mut buffer = cuguard::memory::WriteCombinedBuffer::<u32>::zeroed(&context, 3)?;
    /// buffer.copy_from_slice(&[1, 2, 3])?;
    /// assert_eq!(buffer.as_slice(&context)?, [1, 2, 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::LengthMismatch`], [`Error::ContextClosed`], or any other driver error.
    pub fn copy_from_slice(&mut self, values: &[T]) -> Result<()> {
        const OPERATION: &str = "WriteCombinedBuffer::copy_from_slice";
        check_len(
            OPERATION,
            ("the source", values.len()),
            ("the buffer", self.len()),
        )?;
        // Inside the gate, so the memory is not freed meanwhile.
        let _entered = self.memory.state().enter(OPERATION)?;
        // SAFETY: the memory is aligned and has as many values; this borrow is exclusive, so the source is elsewhere and
        // no work uses the memory.
        unsafe {
            let to = self.memory.start();
            to.copy_from_nonoverlapping(values.as_ptr(), values.len());
        }
        Ok(())
    }

    /// The elements: to be bound in a [`Scope`](crate::Scope), rather than to be read by the host, which is slow.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let staging = cuguard::memory::WriteCombinedBuffer::from_slice(&context, &[1, 2, 3])?;
    /// let buffer = cuguard::DeviceBuffer::from_slice(&context, staging.as_slice(&context)?)?;
    /// assert_eq!(buffer.to_vec()?, [1, 2, 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::WrongContext`] if the buffer belongs to another context, or any other driver error.
    pub fn as_slice<'a>(&'a self, context: &'a Context) -> Result<&'a [T]> {
        self.memory
            .check("WriteCombinedBuffer::as_slice", context)?;
        // SAFETY: the memory has `len` initialized values and is aligned. Its context is borrowed for as long as the
        // slice, so it stays allocated. Work that writes to it borrows the slice exclusively.
        Ok(unsafe { std::slice::from_raw_parts(self.memory.start(), self.len()) })
    }

    /// The elements, for the host to write.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let mut buffer = cuguard::memory::WriteCombinedBuffer::<u32>::zeroed(&context, 3)?;
    /// for (index, value) in buffer.as_mut_slice(&context)?.iter_mut().enumerate() {
    ///     *value = index as u32;
    /// }
    /// assert_eq!(buffer.as_slice(&context)?, [0, 1, 2]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`as_slice`](Self::as_slice).
    pub fn as_mut_slice<'a>(&'a mut self, context: &'a Context) -> Result<&'a mut [T]> {
        self.memory
            .check("WriteCombinedBuffer::as_mut_slice", context)?;
        // SAFETY: as in `as_slice`, and this borrow is exclusive.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.memory.start(), self.len()) })
    }

    /// The number of elements.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// assert_eq!(cuguard::memory::WriteCombinedBuffer::<u32>::zeroed(&context, 3)?.len(), 3);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Whether the length is 0.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// assert!(cuguard::memory::WriteCombinedBuffer::<u32>::zeroed(&context, 0)?.is_empty());
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The size in bytes.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// assert_eq!(cuguard::memory::WriteCombinedBuffer::<u32>::zeroed(&context, 3)?.size_in_bytes(), 12);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn size_in_bytes(&self) -> usize {
        self.len() * size_of::<T>()
    }

    /// Names the buffer in reports.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let buffer = cuguard::memory::WriteCombinedBuffer::<u32>::zeroed(&context, 3)?.with_label("frames");
    /// assert_eq!(context.snapshot().live[0].label.as_deref(), Some("frames"));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use = "returns the guard"]
    pub fn with_label(self, label: &str) -> Self {
        self.memory.owned.name(label);
        self
    }

    /// Frees the memory and returns the driver's error, if any. A failed free is in the report, by `close` or by drop.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let buffer = cuguard::memory::WriteCombinedBuffer::<u32>::zeroed(&context, 3)?;
    /// buffer.close()?;
    /// assert_eq!(context.live_bytes(), 0);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`] if the context was closed first, or any other driver error.
    pub fn close(self) -> Result<()> {
        self.memory.owned.close("WriteCombinedBuffer::close")
    }
}
