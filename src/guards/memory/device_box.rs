//! One value in device memory.

use cust_core::DeviceCopy;

use super::source::Parts;
use crate::error::Result;
use crate::guards::{Context, DeviceBuffer, DevicePointer, DeviceView, DeviceViewMut};

/// One value of type `T` in device memory, freed on drop.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, DeviceBox};
///
/// let context = Context::new(0)?;
/// let mut answer = DeviceBox::new(&context, &42)?;
/// assert_eq!(answer.get()?, 42);
/// answer.set(&43)?;
/// assert_eq!(answer.get()?, 43);
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "dropped at once if unused"]
pub struct DeviceBox<T: DeviceCopy> {
    buffer: DeviceBuffer<T>,
}

impl<T: DeviceCopy> DeviceBox<T> {
    /// Copies `value` to a new allocation. Synchronous.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let half = cuguard::DeviceBox::new(&context, &0.5)?;
    /// assert_eq!(half.get()?, 0.5);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`DeviceBuffer::from_slice`]. Nothing stays allocated.
    #[track_caller]
    pub fn new(context: &Context, value: &T) -> Result<Self> {
        let value = std::slice::from_ref(value);
        let buffer = DeviceBuffer::allocate_copy("DeviceBox::new", Parts::Context(context), value)?;
        Ok(Self { buffer })
    }

    /// Copies the value to the host. Synchronous.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let pair = cuguard::DeviceBox::new(&context, &[1_u8, 2])?;
    /// assert_eq!(pair.get()?, [1, 2]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ContextClosed`](crate::Error::ContextClosed), or any other driver error.
    pub fn get(&self) -> Result<T> {
        self.buffer.as_view().read_one("DeviceBox::get")
    }

    /// Copies `value` to the device. Synchronous.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let mut counter = cuguard::DeviceBox::new(&context, &7)?;
    /// counter.set(&0)?;
    /// assert_eq!(counter.get()?, 0);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ContextClosed`](crate::Error::ContextClosed), or any other driver error.
    pub fn set(&mut self, value: &T) -> Result<()> {
        let value = std::slice::from_ref(value);
        let mut view = self.buffer.as_view_mut();
        view.write("DeviceBox::set", "the box", value)
    }

    /// Names the box in reports.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let counter = cuguard::DeviceBox::new(&context, &7)?.with_label("counter");
    /// assert_eq!(context.snapshot().live[0].label.as_deref(), Some("counter"));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use = "returns the guard"]
    pub fn with_label(self, label: &str) -> Self {
        Self {
            buffer: self.buffer.with_label(label),
        }
    }

    /// The device address, for code that works on the memory on the default stream. In a context with a
    /// [pool](crate::context::ContextBuilder::pool) it pins the value, as [`DeviceBuffer::as_device_ptr`].
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let counter = cuguard::DeviceBox::new(&context, &7)?;
    /// assert!(!counter.as_device_ptr().is_null());
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Panics
    ///
    /// As [`DeviceBuffer::as_device_ptr`].
    #[must_use]
    #[track_caller]
    pub fn as_device_ptr(&self) -> DevicePointer<T> {
        self.buffer.expose("DeviceBox::as_device_ptr");
        DevicePointer::from_raw(self.buffer.address())
    }

    /// The box as a read-only buffer of length 1. To write, use [`set`](Self::set),
    /// [`Scope::bind_mut`](crate::Scope::bind_mut) or [`into_buffer`](Self::into_buffer).
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let counter = cuguard::DeviceBox::new(&context, &7)?;
    /// assert_eq!(counter.as_buffer().to_vec()?, [7]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// There is no `&mut` to the buffer: safe code could replace it by a buffer of another length.
    pub fn as_buffer(&self) -> &DeviceBuffer<T> {
        &self.buffer
    }

    /// A view of the value, of length 1, to be read.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let counter = cuguard::DeviceBox::new(&context, &7)?;
    /// let mut counts = cuguard::DeviceBuffer::zeroed(&context, 3)?;
    /// counts.slice_mut(1..2)?.copy_from(counter.as_view())?;
    /// assert_eq!(counts.to_vec()?, [0, 7, 0]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn as_view(&self) -> DeviceView<'_, T> {
        self.buffer.as_view()
    }

    /// A view of the value, of length 1, to be read and written.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let counts = cuguard::DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    /// let mut counter = cuguard::DeviceBox::new(&context, &7)?;
    /// counter.as_view_mut().copy_from(counts.slice(2..)?)?;
    /// assert_eq!(counter.get()?, 3);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn as_view_mut(&mut self) -> DeviceViewMut<'_, T> {
        self.buffer.as_view_mut()
    }

    /// Copies the value to a new allocation.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let counter = cuguard::DeviceBox::new(&context, &7)?;
    /// let copy = counter.try_clone()?;
    /// drop(counter);
    /// assert_eq!(copy.get()?, 7);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`DeviceBuffer::try_clone`].
    #[track_caller]
    pub fn try_clone(&self) -> Result<Self> {
        let buffer = self.buffer.clone_as("DeviceBox::try_clone")?;
        Ok(Self { buffer })
    }

    /// Converts the box to a buffer of length 1. Nothing is copied, and the record stays.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let mut counter = cuguard::DeviceBox::new(&context, &7)?.into_buffer();
    /// counter.copy_from_slice(&[8])?;
    /// assert_eq!((counter.len(), counter.to_vec()?), (1, vec![8]));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn into_buffer(self) -> DeviceBuffer<T> {
        self.buffer
    }

    /// Frees the memory and returns the driver's error, if any. A failed free is in the report, by `close` or by drop.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let counter = cuguard::DeviceBox::new(&context, &7)?;
    /// counter.close()?;
    /// assert_eq!(context.live_count(), 0);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`DeviceBuffer::close`].
    pub fn close(self) -> Result<()> {
        self.buffer.owned.close("DeviceBox::close")
    }
}

impl<'a, T: DeviceCopy> From<&'a DeviceBox<T>> for DeviceView<'a, T> {
    fn from(boxed: &'a DeviceBox<T>) -> Self {
        boxed.as_view()
    }
}

#[cfg(all(test, feature = "sim"))]
mod tests {
    use cuguard_driver::{Choice, select};

    use super::DeviceBox;
    use crate::guards::DeviceBuffer;
    use crate::{Context, Error, Result};

    /// No public function creates such a box. If one ever did, reading it fails in release builds too, and copies
    /// nothing.
    #[test]
    fn a_box_of_another_length_is_an_error() -> Result<()> {
        let _ = select(Choice::Sim);
        let context = Context::new(0)?;
        for values in [&[][..], &[1_u64; 2], &[1; 4096]] {
            let wrong = DeviceBox {
                buffer: DeviceBuffer::from_slice(&context, values)?,
            };
            let error = wrong.get().unwrap_err();
            assert!(matches!(error, Error::LengthMismatch { .. }), "{error}");
            let len = values.len();
            let text = format!("DeviceBox::get: the buffer has {len} elements, the box 1");
            assert_eq!(error.to_string(), text);
        }
        Ok(())
    }
}
