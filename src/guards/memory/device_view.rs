//! A shared borrow of device memory.

use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::RangeBounds;

use bytemuck::{AnyBitPattern, NoUninit};
use cust_core::DeviceCopy;

use super::cast;
use super::device_memory::DeviceMemory;
use super::host_limit::host_vec;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::guards::{DeviceBuffer, DevicePointer, check_len, check_range};

/// A shared borrow of `len` values of `T` in device memory, as `&[T]` is of host memory: of a [`DeviceBuffer`], a
/// [`DeviceBox`](crate::DeviceBox), a [`ManagedBuffer`](crate::ManagedBuffer) or a part of them.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, DeviceBuffer, DeviceView, Result};
///
/// fn last(values: DeviceView<'_, u32>) -> Result<u32> {
///     Ok(values.slice(values.len() - 1..)?.to_vec()?[0])
/// }
///
/// let context = Context::new(0)?;
/// let buffer = DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
/// assert_eq!(last(buffer.as_view())?, 3);
/// assert_eq!(last(buffer.slice(..2)?)?, 2);
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// The buffer can neither be written nor dropped meanwhile:
///
/// ```compile_fail,E0502
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// # let context = cuguard::Context::new(0).unwrap();
/// let mut buffer = cuguard::DeviceBuffer::from_slice(&context, &[1, 2, 3]).unwrap();
/// let view = buffer.as_view();
/// buffer.copy_from_slice(&[4, 5, 6]).unwrap();
/// println!("{:?}", view.to_vec());
/// ```
#[must_use = "a view does nothing by itself"]
#[doc(alias("CudaView", "DeviceSlice"))]
pub struct DeviceView<'a, T> {
    memory: DeviceMemory<'a>,
    len: usize,
    values: PhantomData<&'a [T]>,
}

impl<T> Clone for DeviceView<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DeviceView<'_, T> {}

impl<T> fmt::Debug for DeviceView<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (len, name) = (self.len, std::any::type_name::<T>());
        write!(f, "DeviceView({len} x {name})")
    }
}

impl<'a, T> DeviceView<'a, T> {
    /// # Safety
    ///
    /// The memory holds `len` valid values for as long as `'a` lasts (or until its context is closed), and what writes
    /// to it is ordered with its accesses.
    pub(crate) unsafe fn new(memory: DeviceMemory<'a>, len: usize) -> Self {
        Self {
            memory,
            len,
            values: PhantomData,
        }
    }

    /// The memory that is borrowed.
    pub(crate) fn memory(&self) -> &DeviceMemory<'a> {
        &self.memory
    }

    /// The number of elements.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let buffer = cuguard::DeviceBuffer::<u16>::zeroed(&context, 5)?;
    /// assert_eq!(buffer.slice(1..3)?.len(), 2);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the length is 0.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let buffer = cuguard::DeviceBuffer::<u16>::zeroed(&context, 5)?;
    /// assert!(buffer.slice(5..)?.is_empty());
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The size in bytes.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let buffer = cuguard::DeviceBuffer::<u16>::zeroed(&context, 5)?;
    /// assert_eq!(buffer.slice(1..3)?.size_in_bytes(), 4);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn size_in_bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// The device address of the first element, for kernels. Stream-ordered memory is valid in the order of its stream;
    /// this does not wait for it.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let buffer = cuguard::DeviceBuffer::<u16>::zeroed(&context, 5)?;
    /// let (whole, part) = (buffer.as_view(), buffer.slice(3..)?);
    /// assert_eq!(part.as_device_ptr().as_raw() - whole.as_device_ptr().as_raw(), 6);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn as_device_ptr(&self) -> DevicePointer<T>
    where
        T: DeviceCopy,
    {
        DevicePointer::from_raw(self.memory.address())
    }

    /// A part of the memory.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let buffer = cuguard::DeviceBuffer::from_slice(&context, &[1, 2, 3, 4])?;
    /// let middle = buffer.as_view().slice(1..3)?;
    /// assert_eq!(middle.to_vec()?, [2, 3]);
    /// let error = middle.slice(1..4).unwrap_err();
    /// assert_eq!(error.to_string(), "DeviceView::slice: the range 1..4 exceeds the view's 2 elements");
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::RangeOutOfBounds`].
    pub fn slice(self, range: impl RangeBounds<usize>) -> Result<Self> {
        self.part("DeviceView::slice", "the view", range)
    }

    pub(super) fn part(
        self,
        operation: &'static str,
        name: &'static str,
        range: impl RangeBounds<usize>,
    ) -> Result<Self> {
        let range = check_range(operation, range, name, self.len)?;
        let size = size_of::<T>();
        Ok(Self {
            memory: self.memory.part(range.start * size, range.len() * size),
            len: range.len(),
            values: PhantomData,
        })
    }

    /// The first `mid` elements, and the rest.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let buffer = cuguard::DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    /// let (front, back) = buffer.as_view().split_at(1)?;
    /// assert_eq!((front.to_vec()?, back.to_vec()?), (vec![1], vec![2, 3]));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::RangeOutOfBounds`].
    pub fn split_at(self, mid: usize) -> Result<(Self, Self)> {
        self.split("DeviceView::split_at", "the view", mid)
    }

    pub(super) fn split(
        self,
        operation: &'static str,
        name: &'static str,
        mid: usize,
    ) -> Result<(Self, Self)> {
        let front = self.part(operation, name, ..mid)?;
        Ok((front, self.part(operation, name, mid..)?))
    }

    /// The same memory as values of another plain-data type.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let buffer = cuguard::DeviceBuffer::from_slice(&context, &[1_u32, 2])?;
    /// assert_eq!(buffer.as_view().cast::<[u16; 2]>()?.to_vec()?, [[1, 0], [2, 0]]);
    /// assert!(buffer.as_view().cast::<[u8; 3]>().is_err()); // 8 bytes
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Cast`] if the memory is not a whole number of such values, or not aligned for them.
    pub fn cast<U: AnyBitPattern>(self) -> Result<DeviceView<'a, U>>
    where
        T: NoUninit,
    {
        self.cast_as("DeviceView::cast")
    }

    pub(super) fn cast_as<U>(self, operation: &'static str) -> Result<DeviceView<'a, U>> {
        let address = self.memory.address();
        Ok(DeviceView {
            memory: self.memory,
            len: cast::length::<T, U>(operation, address, self.len)?,
            values: PhantomData,
        })
    }
}

impl<T: DeviceCopy> DeviceView<'_, T> {
    /// Copies the elements to `values`, which must have the same length. Synchronous.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let buffer = cuguard::DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    /// let mut values = [0; 2];
    /// buffer.slice(1..)?.copy_to_slice(&mut values)?;
    /// assert_eq!(values, [2, 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::LengthMismatch`], [`Error::ContextClosed`], or any other driver error.
    pub fn copy_to_slice(&self, values: &mut [T]) -> Result<()> {
        self.read_to("DeviceView::copy_to_slice", "the view", values)
    }

    pub(super) fn read_to(
        &self,
        operation: &'static str,
        name: &'static str,
        values: &mut [T],
    ) -> Result<()> {
        check_len(
            operation,
            ("the destination", values.len()),
            (name, self.len),
        )?;
        // SAFETY: `values` has room for `len` values.
        unsafe { self.read(operation, values.as_mut_ptr()) }
    }

    /// Copies all elements to `to`. Synchronous.
    ///
    /// # Safety
    ///
    /// `to` has room for `len` values.
    unsafe fn read(&self, operation: &'static str, to: *mut T) -> Result<()> {
        let entered = self.memory.state().enter_to_wait(operation)?;
        // SAFETY: as the caller ensures, and what writes the memory borrows it exclusively.
        unsafe { self.memory.read(&entered, to.cast()) }
    }

    /// Copies the elements to a new vector. Synchronous.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let buffer = cuguard::DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    /// assert_eq!(buffer.slice(..2)?.to_vec()?, [1, 2]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`], [`Error::OutOfHostMemory`], or any other driver error.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        self.read_vec("DeviceView::to_vec")
    }

    pub(super) fn read_vec(&self, operation: &'static str) -> Result<Vec<T>> {
        let mut values = host_vec(operation, self.len, self.memory.bytes())?;
        // SAFETY: there is room for `len` values.
        unsafe { self.read(operation, values.as_mut_ptr())? };
        // SAFETY: `len` values were copied. They are valid, because every safe constructor initializes the memory and
        // `uninitialized` requires it of the caller.
        unsafe { values.set_len(self.len) };
        Ok(values)
    }

    /// Reads the value of a view of length 1. Synchronous.
    pub(super) fn read_one(&self, operation: &'static str) -> Result<T> {
        check_len(operation, ("the buffer", self.len), ("the box", 1))?;
        let mut value = MaybeUninit::uninit();
        // SAFETY: there is room for one value.
        unsafe { self.read(operation, value.as_mut_ptr())? };
        // SAFETY: copied above, or zero-sized; valid as in `read_vec`.
        Ok(unsafe { value.assume_init() })
    }
}

impl<'a, T> From<&DeviceView<'a, T>> for DeviceView<'a, T> {
    fn from(view: &DeviceView<'a, T>) -> Self {
        *view
    }
}

impl<'a, T: DeviceCopy> From<&'a DeviceBuffer<T>> for DeviceView<'a, T> {
    fn from(buffer: &'a DeviceBuffer<T>) -> Self {
        buffer.as_view()
    }
}
