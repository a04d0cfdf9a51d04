//! An exclusive borrow of device memory.

use std::fmt;
use std::marker::PhantomData;
use std::ops::RangeBounds;

use bytemuck::{AnyBitPattern, NoUninit};
use cust_core::DeviceCopy;

use super::device_memory::DeviceMemory;
use super::device_view::DeviceView;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
#[cfg(doc)]
use crate::guards::DeviceBuffer;
use crate::guards::DevicePointer;

/// An exclusive borrow of `len` values of `T` in device memory, as `&mut [T]` is of host memory: of a [`DeviceBuffer`], a
/// [`DeviceBox`](crate::DeviceBox), a [`ManagedBuffer`](crate::ManagedBuffer) or a part of them.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, DeviceBuffer};
///
/// let context = Context::new(0)?;
/// let mut buffer = DeviceBuffer::from_slice(&context, &[1, 2, 3, 4])?;
/// let (mut front, mut back) = buffer.split_at_mut(2)?;
/// front.copy_from(&back)?;
/// back.slice_mut(1..)?.fill(7)?;
/// assert_eq!(buffer.to_vec()?, [3, 4, 3, 7]);
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// Nothing else accesses the buffer meanwhile:
///
/// ```compile_fail,E0502
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// # let context = cuguard::Context::new(0).unwrap();
/// let mut buffer = cuguard::DeviceBuffer::from_slice(&context, &[1, 2, 3]).unwrap();
/// let mut view = buffer.as_view_mut();
/// println!("{:?}", buffer.to_vec());
/// view.fill(0).unwrap();
/// ```
#[must_use = "a view does nothing by itself"]
#[doc(alias = "CudaViewMut")]
pub struct DeviceViewMut<'a, T> {
    inner: DeviceView<'a, T>,
    values: PhantomData<&'a mut [T]>,
}

// SAFETY: stands for a `&mut [T]`. (`Sync` comes from the fields, which have the bounds of `&[T]` and `&mut [T]`.)
unsafe impl<T: Send> Send for DeviceViewMut<'_, T> {}

impl<T> fmt::Debug for DeviceViewMut<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (len, name) = (self.len(), std::any::type_name::<T>());
        write!(f, "DeviceViewMut({len} x {name})")
    }
}

impl<'a, T> DeviceViewMut<'a, T> {
    /// # Safety
    ///
    /// As [`DeviceView::new`], and nothing else accesses the memory for as long as `'a` lasts.
    pub(crate) unsafe fn new(memory: DeviceMemory<'a>, len: usize) -> Self {
        // SAFETY: as the caller ensures.
        Self::of(unsafe { DeviceView::new(memory, len) })
    }

    /// The caller has borrowed the memory of the view exclusively, and no longer uses that borrow.
    fn of(inner: DeviceView<'a, T>) -> Self {
        Self {
            inner,
            values: PhantomData,
        }
    }

    /// The memory that is borrowed.
    pub(crate) fn memory(&self) -> &DeviceMemory<'a> {
        self.inner.memory()
    }

    /// The number of elements.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let mut buffer = cuguard::DeviceBuffer::<u16>::zeroed(&context, 5)?;
    /// assert_eq!(buffer.slice_mut(1..3)?.len(), 2);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.len()
    }

    /// Whether the length is 0.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let mut buffer = cuguard::DeviceBuffer::<u16>::zeroed(&context, 5)?;
    /// assert!(buffer.slice_mut(5..)?.is_empty());
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inner.is_empty()
    }

    /// The size in bytes.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let mut buffer = cuguard::DeviceBuffer::<u16>::zeroed(&context, 5)?;
    /// assert_eq!(buffer.slice_mut(1..3)?.size_in_bytes(), 4);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn size_in_bytes(&self) -> usize {
        self.inner.size_in_bytes()
    }

    /// The device address of the first element, for kernels. Stream-ordered memory is valid in the order of its stream;
    /// this does not wait for it.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let mut buffer = cuguard::DeviceBuffer::<u16>::zeroed(&context, 5)?;
    /// let (front, back) = buffer.split_at_mut(3)?;
    /// assert_eq!(back.as_device_ptr().as_raw() - front.as_device_ptr().as_raw(), 6);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn as_device_ptr(&self) -> DevicePointer<T>
    where
        T: DeviceCopy,
    {
        self.inner.as_device_ptr()
    }

    /// The same memory, to be read while this view is borrowed.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let mut buffer = cuguard::DeviceBuffer::from_slice(&context, &[1, 2])?;
    /// let view = buffer.as_view_mut();
    /// let (one, other) = (view.as_view(), view.as_view());
    /// assert_eq!(one.to_vec()?, other.to_vec()?);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn as_view(&self) -> DeviceView<'_, T> {
        self.inner
    }

    /// The same memory, to be read from now on.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// use cuguard::{DeviceBuffer, DeviceView, Result};
    ///
    /// fn zeroed(buffer: &mut DeviceBuffer<u8>) -> Result<DeviceView<'_, u8>> {
    ///     let mut view = buffer.as_view_mut();
    ///     view.zero()?;
    ///     Ok(view.into_view())
    /// }
    /// assert_eq!(zeroed(&mut DeviceBuffer::from_slice(&context, &[1])?)?.to_vec()?, [0]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn into_view(self) -> DeviceView<'a, T> {
        self.inner
    }

    /// The same memory, borrowed exclusively for a shorter time; for functions that take a view by value.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// use cuguard::{DeviceBuffer, DeviceViewMut, Result};
    ///
    /// fn clear(mut values: DeviceViewMut<'_, u32>) -> Result<()> {
    ///     values.zero()
    /// }
    ///
    /// let mut buffer = DeviceBuffer::from_slice(&context, &[1, 2])?;
    /// let mut view = buffer.as_view_mut();
    /// clear(view.reborrow())?;
    /// view.slice_mut(1..)?.fill(7)?;
    /// assert_eq!(buffer.to_vec()?, [0, 7]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn reborrow(&mut self) -> DeviceViewMut<'_, T> {
        DeviceViewMut::of(self.inner)
    }

    /// A part of the memory, to be read.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let mut buffer = cuguard::DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    /// assert_eq!(buffer.as_view_mut().slice(1..)?.to_vec()?, [2, 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::RangeOutOfBounds`].
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<DeviceView<'_, T>> {
        self.inner.part("DeviceViewMut::slice", "the view", range)
    }

    /// A part of the memory; [`split_at_mut`](Self::split_at_mut) borrows both parts.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let mut buffer = cuguard::DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    /// buffer.as_view_mut().slice_mut(1..)?.copy_from_slice(&[8, 9])?;
    /// assert_eq!(buffer.to_vec()?, [1, 8, 9]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::RangeOutOfBounds`].
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<DeviceViewMut<'_, T>> {
        self.reborrow()
            .part("DeviceViewMut::slice_mut", "the view", range)
    }

    /// A part of the memory, for as long as the whole was borrowed; [`slice_mut`](Self::slice_mut) borrows the view.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// let mut buffer = cuguard::DeviceBuffer::from_slice(&context, &[1, 2, 3, 4])?;
    /// stream.scope(|s| {
    ///     let (front, _) = buffer.split_at_mut(3)?;
    ///     s.zero(&mut s.bind_mut(front.into_slice(1..)?)?)
    /// })?;
    /// assert_eq!(buffer.to_vec()?, [1, 0, 0, 4]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::RangeOutOfBounds`].
    pub fn into_slice(self, range: impl RangeBounds<usize>) -> Result<Self> {
        self.part("DeviceViewMut::into_slice", "the view", range)
    }

    pub(super) fn part(
        self,
        operation: &'static str,
        name: &'static str,
        range: impl RangeBounds<usize>,
    ) -> Result<Self> {
        self.inner.part(operation, name, range).map(Self::of)
    }

    /// The first `mid` elements and the rest, to be read.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let mut buffer = cuguard::DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    /// let view = buffer.as_view_mut();
    /// let (front, back) = view.split_at(1)?;
    /// assert_eq!((front.to_vec()?, back.to_vec()?), (vec![1], vec![2, 3]));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::RangeOutOfBounds`].
    pub fn split_at(&self, mid: usize) -> Result<(DeviceView<'_, T>, DeviceView<'_, T>)> {
        self.inner.split("DeviceViewMut::split_at", "the view", mid)
    }

    /// The first `mid` elements, and the rest.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let mut buffer = cuguard::DeviceBuffer::from_slice(&context, &[1, 2, 3, 4])?;
    /// let mut view = buffer.as_view_mut();
    /// let (mut front, back) = view.split_at_mut(2)?;
    /// front.copy_from(&back)?;
    /// assert_eq!(buffer.to_vec()?, [3, 4, 3, 4]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::RangeOutOfBounds`].
    pub fn split_at_mut(
        &mut self,
        mid: usize,
    ) -> Result<(DeviceViewMut<'_, T>, DeviceViewMut<'_, T>)> {
        self.reborrow()
            .split("DeviceViewMut::split_at_mut", "the view", mid)
    }

    /// The first `mid` elements and the rest, for as long as the whole was borrowed;
    /// [`split_at_mut`](Self::split_at_mut) borrows the view.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// let mut buffer = cuguard::DeviceBuffer::from_slice(&context, &[1, 2, 3, 4])?;
    /// stream.scope(|s| {
    ///     let (front, back) = buffer.slice_mut(1..)?.into_split_at(1)?;
    ///     s.fill(&mut s.bind_mut(front)?, 7)?;
    ///     s.fill(&mut s.bind_mut(back)?, 8)
    /// })?;
    /// assert_eq!(buffer.to_vec()?, [1, 7, 8, 8]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::RangeOutOfBounds`].
    pub fn into_split_at(self, mid: usize) -> Result<(Self, Self)> {
        self.split("DeviceViewMut::into_split_at", "the view", mid)
    }

    pub(super) fn split(
        self,
        operation: &'static str,
        name: &'static str,
        mid: usize,
    ) -> Result<(Self, Self)> {
        let (front, back) = self.inner.split(operation, name, mid)?;
        // The two parts do not overlap.
        Ok((Self::of(front), Self::of(back)))
    }

    /// The same memory as values of another plain-data type.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let mut buffer = cuguard::DeviceBuffer::from_slice(&context, &[1_u32, 2])?;
    /// buffer.as_view_mut().cast::<u8>()?.fill(0xff)?;
    /// assert_eq!(buffer.to_vec()?, [u32::MAX; 2]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Cast`] if the memory is not a whole number of such values, or not aligned for them.
    pub fn cast<U: NoUninit + AnyBitPattern>(self) -> Result<DeviceViewMut<'a, U>>
    where
        T: NoUninit + AnyBitPattern,
    {
        let inner = self.inner.cast_as("DeviceViewMut::cast")?;
        Ok(DeviceViewMut::of(inner))
    }
}

impl<'a, T> From<&'a DeviceViewMut<'_, T>> for DeviceView<'a, T> {
    fn from(view: &'a DeviceViewMut<'_, T>) -> Self {
        view.as_view()
    }
}
