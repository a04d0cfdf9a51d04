//! Managed (unified) memory.

use std::panic::Location;
use std::sync::Arc;

use bytemuck::Zeroable;
use cuguard_driver::result::{CallError, device, memory};
use cuguard_driver::sys::{CUresult, device_attribute, flags};
use cust_core::DeviceCopy;

use super::device_memory::DeviceMemory;
use super::driver_memory::DriverMemory;
use super::host_limit;
use crate::core::{self, ContextState, Request};
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::guards::{Context, DevicePointer, DeviceView, DeviceViewMut, bytes_of};
use crate::recovery;
use cuguard_registry::ResourceKind;

/// Values of type `T` in managed memory, which migrates between host and device on access. Freed on drop.
///
/// Closing the context frees the memory. So the host accesses it only through a borrow of the context, which cannot be
/// closed or dropped while the slice exists.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, ManagedBuffer};
///
/// let context = Context::new(0)?;
/// let mut buffer = ManagedBuffer::from_slice(&context, &[1, 2, 3])?;
/// buffer.as_mut_slice(&context)?[0] = 10;
/// assert_eq!(buffer.as_slice(&context)?, [10, 2, 3]);
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// The context cannot be dropped while a slice borrows it:
///
/// ```compile_fail,E0505
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// # use cuguard::{Context, ManagedBuffer};
/// let context = Context::new(0).unwrap();
/// let buffer = ManagedBuffer::from_slice(&context, &[1, 2, 3]).unwrap();
/// let slice = buffer.as_slice(&context).unwrap();
/// drop(context);
/// println!("{slice:?}");
/// ```
#[derive(Debug)]
#[must_use = "dropped at once if unused"]
#[doc(alias(
    "UnifiedBuffer",
    "UnifiedSlice",
    "cuMemAllocManaged",
    "cudaMallocManaged"
))]
pub struct ManagedBuffer<T: DeviceCopy> {
    memory: DriverMemory<T>,
}

/// The error for a device that lacks it.
pub(super) const NOT_CONCURRENT: CallError = CallError {
    function: "concurrent managed access",
    code: CUresult::NOT_SUPPORTED,
};

impl<T: DeviceCopy> ManagedBuffer<T> {
    #[track_caller]
    fn allocate(operation: &'static str, context: &Context, len: usize) -> Result<Self> {
        let bytes = bytes_of::<T>(operation, len)?;
        let state = context.state();
        // The driver overcommits managed memory. The constructors write all of it on the host, and written pages stay
        // in host memory until the device accesses them.
        host_limit::check(operation, bytes)?;
        let request = Request {
            operation,
            kind: Some(ResourceKind::Managed),
            bytes,
            site: Location::caller(),
        };
        let owned = recovery::with_recovery(state, &request, || {
            let entered = state.enter_to_wait(operation)?;
            let attribute = device_attribute::CONCURRENT_MANAGED_ACCESS;
            let is_concurrent = || device::attribute(attribute, state.device as i32);
            if bytes != 0 && entered.check(is_concurrent())? == 0 {
                // On such devices the host must not access managed memory while any kernel runs, which cannot be
                // enforced.
                entered.check_bytes(Err(NOT_CONCURRENT), bytes)?;
            }
            let (owner, type_name) = (context.open().into(), std::any::type_name::<T>());
            core::allocate(
                state,
                &request,
                ResourceKind::Managed,
                type_name,
                || owner,
                || memory::alloc_managed(bytes, flags::MEM_ATTACH_GLOBAL),
            )
        })?;
        let memory = DriverMemory::new(operation, len, owned)?;
        Ok(Self { memory })
    }

    /// Copies `values` to a new allocation.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let buffer = cuguard::ManagedBuffer::from_slice(&context, &[1, 2, 3])?;
    /// assert_eq!(buffer.as_slice(&context)?, [1, 2, 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::OutOfHostMemory`] for more than the host has, because the host writes the values; [`Error::Misaligned`]
    /// if the driver's address is not aligned for `T`; [`Error::OutOfMemory`]; or any other driver error:
    /// `CUDA_ERROR_NOT_SUPPORTED` if the device has no concurrent managed access. Nothing stays allocated.
    #[track_caller]
    pub fn from_slice(context: &Context, values: &[T]) -> Result<Self> {
        let buffer = Self::allocate("ManagedBuffer::from_slice", context, values.len())?;
        // SAFETY: the new allocation is aligned, has room for all values, and nothing else refers to it.
        unsafe {
            buffer
                .memory
                .start()
                .copy_from_nonoverlapping(values.as_ptr(), values.len());
        }
        Ok(buffer)
    }

    /// Allocates `len` values and sets every byte to zero.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let buffer = cuguard::ManagedBuffer::<u32>::zeroed(&context, 3)?;
    /// assert_eq!(buffer.as_slice(&context)?, [0, 0, 0]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`from_slice`](Self::from_slice).
    #[track_caller]
    pub fn zeroed(context: &Context, len: usize) -> Result<Self>
    where
        T: Zeroable,
    {
        let buffer = Self::allocate("ManagedBuffer::zeroed", context, len)?;
        // SAFETY: the new allocation is aligned, has room for all values, and nothing else refers to it.
        unsafe { buffer.memory.start().write_bytes(0, len) };
        Ok(buffer)
    }

    pub(crate) fn state(&self) -> &Arc<ContextState> {
        self.memory.state()
    }

    /// The elements, for the host to read.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::{Context, Error, ManagedBuffer};
    ///
    /// let (context, other) = (Context::new(0)?, Context::new(0)?);
    /// let buffer = ManagedBuffer::from_slice(&context, &[1, 2, 3])?;
    /// assert_eq!(buffer.as_slice(&context)?.iter().sum::<i32>(), 6);
    /// assert!(matches!(buffer.as_slice(&other), Err(Error::WrongContext { .. })));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::WrongContext`] if the buffer belongs to another context, or any other driver error.
    pub fn as_slice<'a>(&'a self, context: &'a Context) -> Result<&'a [T]> {
        self.memory.check("ManagedBuffer::as_slice", context)?;
        // SAFETY: the memory has `len` initialized values and is aligned (`allocate`). Its context is borrowed for as
        // long as the slice, so it stays allocated. Work that writes to it borrows the buffer exclusively.
        Ok(unsafe { std::slice::from_raw_parts(self.memory.start(), self.len()) })
    }

    /// The elements, for the host to read and write.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let mut buffer = cuguard::ManagedBuffer::from_slice(&context, &[1, 2, 3])?;
    /// buffer.as_mut_slice(&context)?.reverse();
    /// assert_eq!(buffer.as_slice(&context)?, [3, 2, 1]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`as_slice`](Self::as_slice).
    pub fn as_mut_slice<'a>(&'a mut self, context: &'a Context) -> Result<&'a mut [T]> {
        self.memory.check("ManagedBuffer::as_mut_slice", context)?;
        // SAFETY: as in `as_slice`, and this borrow is exclusive.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.memory.start(), self.len()) })
    }

    pub(super) fn device_memory(&self) -> DeviceMemory<'_> {
        DeviceMemory::of(
            &self.memory.owned,
            self.memory.address(),
            self.size_in_bytes(),
        )
    }

    /// The memory as the device sees it, to be read: for copies by the driver, such as [`DeviceViewMut::copy_from`].
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let managed = cuguard::ManagedBuffer::from_slice(&context, &[1, 2, 3])?;
    /// let mut buffer = cuguard::DeviceBuffer::zeroed(&context, 2)?;
    /// buffer.copy_from(managed.as_view().slice(1..)?)?;
    /// assert_eq!(buffer.to_vec()?, [2, 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn as_view(&self) -> DeviceView<'_, T> {
        // SAFETY: the memory has `len` initialized values while the buffer is borrowed, or until its context is closed.
        // Work and host code that write to it borrow the buffer exclusively.
        unsafe { DeviceView::new(self.device_memory(), self.len()) }
    }

    /// The memory as the device sees it, to be read and written: for copies and fills by the driver.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let mut managed = cuguard::ManagedBuffer::from_slice(&context, &[1, 2, 3])?;
    /// managed.as_view_mut().slice_mut(..2)?.fill(7)?;
    /// assert_eq!(managed.as_slice(&context)?, [7, 7, 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn as_view_mut(&mut self) -> DeviceViewMut<'_, T> {
        // SAFETY: as in `as_view`, and this borrow is exclusive.
        unsafe { DeviceViewMut::new(self.device_memory(), self.len()) }
    }

    /// The device address, for kernels.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let buffer = cuguard::ManagedBuffer::from_slice(&context, &[1, 2, 3])?;
    /// let address = buffer.as_slice(&context)?.as_ptr() as u64;
    /// assert_eq!(buffer.as_device_ptr().as_raw(), address); // the same on both sides
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn as_device_ptr(&self) -> DevicePointer<T> {
        DevicePointer::from_raw(self.memory.address())
    }

    /// The number of elements.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let buffer = cuguard::ManagedBuffer::from_slice(&context, &[1, 2, 3])?;
    /// assert_eq!(buffer.len(), 3);
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
    /// assert!(cuguard::ManagedBuffer::<u32>::zeroed(&context, 0)?.is_empty());
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
    /// assert_eq!(cuguard::ManagedBuffer::<u32>::zeroed(&context, 3)?.size_in_bytes(), 12);
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
    /// let buffer = cuguard::ManagedBuffer::from_slice(&context, &[1, 2, 3])?.with_label("table");
    /// assert_eq!(context.snapshot().live[0].label.as_deref(), Some("table"));
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
    /// let buffer = cuguard::ManagedBuffer::from_slice(&context, &[1, 2, 3])?;
    /// buffer.close()?;
    /// assert_eq!(context.live_bytes(), 0);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`] if the context was closed first, or any other driver error.
    pub fn close(self) -> Result<()> {
        self.memory.owned.close("ManagedBuffer::close")
    }
}

impl<'a, T: DeviceCopy> From<&'a ManagedBuffer<T>> for DeviceView<'a, T> {
    fn from(buffer: &'a ManagedBuffer<T>) -> Self {
        buffer.as_view()
    }
}
