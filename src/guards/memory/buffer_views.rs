//! Views of a buffer, and the operations that buffers and views share.

use std::ops::RangeBounds;

use bytemuck::{AnyBitPattern, NoUninit, Zeroable};
use cust_core::DeviceCopy;

use super::cast;
use crate::core::Owner;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::guards::{DeviceBuffer, DeviceView, DeviceViewMut, PoolRef};

impl<T: DeviceCopy> DeviceBuffer<T> {
    /// A view of the whole buffer, to be read.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let buffer = cuguard::DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    /// assert_eq!(buffer.as_view().len(), 3);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn as_view(&self) -> DeviceView<'_, T> {
        // SAFETY: the memory holds `len` valid values, as the constructors ensure, while the buffer is borrowed.
        unsafe { DeviceView::new(self.memory(), self.len()) }
    }

    /// A view of the whole buffer, to be read and written.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let mut buffer = cuguard::DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    /// buffer.as_view_mut().fill(4)?;
    /// assert_eq!(buffer.to_vec()?, [4, 4, 4]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn as_view_mut(&mut self) -> DeviceViewMut<'_, T> {
        // SAFETY: as in `as_view`, and the buffer is borrowed exclusively.
        unsafe { DeviceViewMut::new(self.memory(), self.len()) }
    }

    /// A view of a part of the buffer, to be read.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let buffer = cuguard::DeviceBuffer::from_slice(&context, &[1, 2, 3, 4])?;
    /// assert_eq!(buffer.slice(1..3)?.to_vec()?, [2, 3]);
    /// let error = buffer.slice(3..9).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "DeviceBuffer::slice: the range 3..9 exceeds the buffer's 4 elements"
    /// );
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::RangeOutOfBounds`].
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<DeviceView<'_, T>> {
        self.as_view()
            .part("DeviceBuffer::slice", "the buffer", range)
    }

    /// A view of a part of the buffer, to be read and written.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let mut buffer = cuguard::DeviceBuffer::from_slice(&context, &[1, 2, 3, 4])?;
    /// buffer.slice_mut(1..3)?.copy_from_slice(&[8, 9])?;
    /// assert_eq!(buffer.to_vec()?, [1, 8, 9, 4]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::RangeOutOfBounds`].
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<DeviceViewMut<'_, T>> {
        self.as_view_mut()
            .part("DeviceBuffer::slice_mut", "the buffer", range)
    }

    /// Views of the first `mid` elements and of the rest, to be read.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let buffer = cuguard::DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    /// let (front, back) = buffer.split_at(1)?;
    /// assert_eq!((front.to_vec()?, back.to_vec()?), (vec![1], vec![2, 3]));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::RangeOutOfBounds`].
    pub fn split_at(&self, mid: usize) -> Result<(DeviceView<'_, T>, DeviceView<'_, T>)> {
        self.as_view()
            .split("DeviceBuffer::split_at", "the buffer", mid)
    }

    /// Views of the first `mid` elements and of the rest, to be read and written.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let mut buffer = cuguard::DeviceBuffer::from_slice(&context, &[1, 2, 3, 4])?;
    /// let (mut front, back) = buffer.split_at_mut(2)?;
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
        self.as_view_mut()
            .split("DeviceBuffer::split_at_mut", "the buffer", mid)
    }

    /// Copies from other device memory of the same length: within a context, from another context, or from another
    /// device. [Views](Self::slice) copy parts. Synchronous.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # use cuguard::DeviceBuffer;
    /// let from = DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    /// let mut to = DeviceBuffer::zeroed(&context, 3)?;
    /// to.copy_from(&from)?;
    /// assert_eq!(to.to_vec()?, [1, 2, 3]);
    /// assert!(to.copy_from(from.slice(1..)?).is_err()); // two elements
    /// to.slice_mut(..2)?.copy_from(from.slice(1..)?)?;
    /// assert_eq!(to.to_vec()?, [2, 3, 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::LengthMismatch`], [`Error::ContextClosed`], or any other driver error.
    pub fn copy_from<'a>(&mut self, source: impl Into<DeviceView<'a, T>>) -> Result<()>
    where
        T: 'a,
    {
        let (operation, source) = ("DeviceBuffer::copy_from", source.into());
        self.as_view_mut()
            .copy_view(operation, "the buffer", source)
    }

    /// Sets every element to `value`; see [`DeviceViewMut::fill`].
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let mut buffer = cuguard::DeviceBuffer::zeroed(&context, 3)?;
    /// buffer.fill(1.5_f32)?;
    /// assert_eq!(buffer.to_vec()?, [1.5; 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`], or any other driver error.
    pub fn fill(&mut self, value: T) -> Result<()>
    where
        T: NoUninit,
    {
        self.as_view_mut().fill_as("DeviceBuffer::fill", value)
    }

    /// Sets every byte to zero; see [`DeviceViewMut::zero`].
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let mut buffer = cuguard::DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    /// buffer.zero()?;
    /// assert_eq!(buffer.to_vec()?, [0; 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`], or any other driver error.
    pub fn zero(&mut self) -> Result<()>
    where
        T: Zeroable,
    {
        self.as_view_mut().zero_as("DeviceBuffer::zero")
    }

    /// Copies the buffer to a new allocation of the same kind: synchronous, or stream-ordered on the same stream and from
    /// the same pool. A stream-ordered copy is only enqueued.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let buffer = cuguard::DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    /// let mut copy = buffer.try_clone()?;
    /// copy.fill(7)?;
    /// assert_eq!((buffer.to_vec()?, copy.to_vec()?), (vec![1, 2, 3], vec![7; 3]));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] with a diagnosis, [`Error::ContextClosed`], or any other driver error. Nothing stays
    /// allocated.
    #[track_caller]
    pub fn try_clone(&self) -> Result<Self> {
        self.clone_as("DeviceBuffer::try_clone")
    }

    #[track_caller]
    pub(super) fn clone_as(&self, operation: &'static str) -> Result<Self> {
        let (pool, home) = match self.owned.owner() {
            Owner::Stream(home) => (PoolRef::Default, home),
            Owner::Pool(both) => (PoolRef::Driver(&both.0), &both.1),
            Owner::Pooled(home) => (PoolRef::Virtual(home.pool()), home.stream()),
            Owner::Context(context) => {
                let (entered, mut copy) = Self::allocate(operation, context, self.len())?;
                drop(entered);
                copy.as_view_mut()
                    .copy_view(operation, "the buffer", self.as_view())?;
                return Ok(copy);
            }
            Owner::State(_) => unreachable!("the owner of pools alone"),
        };
        let memory = self.memory();
        memory.check_not_captured(&self.state().enter(operation)?)?;
        let copy = Self::allocate_on(operation, pool, home, self.len())?;
        let bytes = self.size_in_bytes();
        if bytes != 0 {
            let entered = self.state().enter(operation)?;
            // SAFETY: equally many bytes of two allocations. Both are freed, and accessed by all else, in the order of
            // this stream.
            let enqueued = unsafe { copy.memory().enqueue_copy(&entered, home, &memory)? };
            entered.check_bytes(enqueued, bytes)?;
        }
        Ok(copy)
    }

    /// Converts the buffer to values of another plain-data type. Nothing is copied, and the record stays.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let words = cuguard::DeviceBuffer::from_slice(&context, &[1_u32, 2])?;
    /// let bytes = words.cast::<u8>()?;
    /// assert_eq!(bytes.to_vec()?, [1, 0, 0, 0, 2, 0, 0, 0]);
    /// let error = bytes.cast::<[u32; 3]>().unwrap_err();
    /// assert!(error.to_string().contains("8 bytes are not a multiple of 12 bytes"), "{error}");
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Cast`] if the memory is not a whole number of such values, or not aligned for them; the buffer is freed.
    /// [`DeviceView::cast`] keeps it.
    pub fn cast<U: DeviceCopy + AnyBitPattern>(self) -> Result<DeviceBuffer<U>>
    where
        T: NoUninit,
    {
        let len = cast::length::<T, U>("DeviceBuffer::cast", self.address(), self.len())?;
        Ok(DeviceBuffer::from_owned(len, self.owned))
    }
}
