//! Copies and fills through an exclusive view.

use bytemuck::{NoUninit, Zeroable};
use cust_core::DeviceCopy;

#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
#[cfg(doc)]
use crate::guards::DeviceBuffer;
use crate::guards::{DeviceView, DeviceViewMut, check_len};

impl<T: DeviceCopy> DeviceViewMut<'_, T> {
    /// Copies `values` to the device; there must be equally many. Synchronous.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let mut buffer = cuguard::DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    /// buffer.slice_mut(..2)?.copy_from_slice(&[8, 9])?;
    /// assert_eq!(buffer.to_vec()?, [8, 9, 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::LengthMismatch`], [`Error::ContextClosed`], or any other driver error.
    pub fn copy_from_slice(&mut self, values: &[T]) -> Result<()> {
        self.write("DeviceViewMut::copy_from_slice", "the view", values)
    }

    pub(super) fn write(
        &mut self,
        operation: &'static str,
        name: &'static str,
        values: &[T],
    ) -> Result<()> {
        check_len(operation, ("the source", values.len()), (name, self.len()))?;
        let entered = self.memory().state().enter_to_wait(operation)?;
        // SAFETY: there are equally many values, and this borrow is exclusive.
        unsafe { self.memory().write(&entered, values.as_ptr().cast()) }
    }

    /// Copies the elements to `values`, which must have the same length. Synchronous.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let mut buffer = cuguard::DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    /// let mut values = [0; 2];
    /// buffer.slice_mut(1..)?.copy_to_slice(&mut values)?;
    /// assert_eq!(values, [2, 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::LengthMismatch`], [`Error::ContextClosed`], or any other driver error.
    pub fn copy_to_slice(&self, values: &mut [T]) -> Result<()> {
        let operation = "DeviceViewMut::copy_to_slice";
        self.as_view().read_to(operation, "the view", values)
    }

    /// Copies the elements to a new vector. Synchronous.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let mut buffer = cuguard::DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    /// assert_eq!(buffer.slice_mut(..2)?.to_vec()?, [1, 2]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`], [`Error::OutOfHostMemory`], or any other driver error.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        self.as_view().read_vec("DeviceViewMut::to_vec")
    }

    /// Copies from other device memory of the same length: within a context, from another context, or from another
    /// device. Synchronous.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer};
    /// let (one, other) = (Context::new(0)?, Context::builder().dedicated().build()?);
    /// let from = DeviceBuffer::from_slice(&one, &[1, 2, 3])?;
    /// let mut to = DeviceBuffer::from_slice(&other, &[7, 8, 9])?;
    /// to.slice_mut(1..)?.copy_from(from.slice(..2)?)?;
    /// assert_eq!(to.to_vec()?, [7, 1, 2]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::LengthMismatch`], [`Error::ContextClosed`], or any other driver error.
    pub fn copy_from<'b>(&mut self, source: impl Into<DeviceView<'b, T>>) -> Result<()>
    where
        T: 'b,
    {
        self.copy_view("DeviceViewMut::copy_from", "the view", source.into())
    }

    pub(super) fn copy_view(
        &mut self,
        operation: &'static str,
        name: &'static str,
        source: DeviceView<'_, T>,
    ) -> Result<()> {
        check_len(operation, ("the source", source.len()), (name, self.len()))?;
        // SAFETY: there are equally many values. The memory does not overlap, as this borrow is exclusive.
        unsafe { self.memory().copy_from(operation, source.memory()) }
    }

    /// Sets every element to `value`. Synchronous; but a fill of stream-ordered memory may only be enqueued on its
    /// stream.
    ///
    /// Values of 1, 2 and 4 bytes, and those that repeat such a pattern, are filled by the driver, other values by
    /// copies of the part that is filled, each twice as large as the one before.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let mut buffer = cuguard::DeviceBuffer::<f64>::zeroed(&context, 4)?;
    /// buffer.slice_mut(1..)?.fill(0.1)?;
    /// assert_eq!(buffer.to_vec()?, [0.0, 0.1, 0.1, 0.1]);
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
        self.fill_as("DeviceViewMut::fill", value)
    }

    pub(super) fn fill_as(&mut self, operation: &'static str, value: T) -> Result<()>
    where
        T: NoUninit,
    {
        let entered = self.memory().state().enter_to_wait(operation)?;
        // SAFETY: the memory holds values of this type, and this borrow is exclusive.
        unsafe { self.memory().fill(&entered, bytemuck::bytes_of(&value)) }
    }

    /// Sets every byte to zero. Synchronous; but stream-ordered memory is set to zero on its stream, without waiting.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let mut buffer = cuguard::DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    /// buffer.slice_mut(1..)?.zero()?;
    /// assert_eq!(buffer.to_vec()?, [1, 0, 0]);
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
        self.zero_as("DeviceViewMut::zero")
    }

    pub(super) fn zero_as(&mut self, operation: &'static str) -> Result<()>
    where
        T: Zeroable,
    {
        let entered = self.memory().state().enter_to_wait(operation)?;
        self.memory().check_not_captured(&entered)?;
        // SAFETY: this borrow is exclusive. `Zeroable`: the zero value is valid.
        unsafe { self.memory().zero(&entered) }
    }
}
