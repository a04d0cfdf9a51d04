//! One value in device memory.

use cust::memory::{DeviceCopy, DevicePointer};

use crate::context::Context;
use crate::error::Result;
use crate::memory::DeviceBuffer;

/// One value of type `T` in device memory, freed when this goes.
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
#[must_use = "what is not kept is freed at once"]
pub struct DeviceBox<T: DeviceCopy> {
    buffer: DeviceBuffer<T>,
}

impl<T: DeviceCopy> DeviceBox<T> {
    /// A copy of `value` on the device.
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
    /// What the driver says; nothing stays allocated then.
    #[track_caller]
    pub fn new(context: &Context, value: &T) -> Result<Self> {
        let value = std::slice::from_ref(value);
        let buffer = DeviceBuffer::copy_of("DeviceBox::new", context, value)?;
        Ok(Self { buffer })
    }

    /// The value, copied to the host.
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
    /// [`ContextClosed`](crate::Error::ContextClosed), or what the driver says.
    pub fn get(&self) -> Result<T> {
        self.buffer.first("DeviceBox::get")
    }

    /// Copies `value` to the device.
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
    /// [`ContextClosed`](crate::Error::ContextClosed), or what the driver says.
    pub fn set(&mut self, value: &T) -> Result<()> {
        let value = std::slice::from_ref(value);
        self.buffer.write("DeviceBox::set", value)
    }

    /// Gives the box a name that reports show.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let counter = cuguard::DeviceBox::new(&context, &7)?.named("counter");
    /// assert_eq!(context.snapshot().leaks[0].label.as_deref(), Some("counter"));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use = "the box is handed back"]
    pub fn named(self, label: &str) -> Self {
        Self {
            buffer: self.buffer.named(label),
        }
    }

    /// The device address, for kernels.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let counter = cuguard::DeviceBox::new(&context, &7)?;
    /// assert!(!counter.as_device_ptr().is_null());
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn as_device_ptr(&self) -> DevicePointer<T> {
        DevicePointer::from_raw(self.buffer.address())
    }

    /// The box as a buffer of one value.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let counter = cuguard::DeviceBox::new(&context, &7)?;
    /// assert_eq!(counter.as_buffer().to_vec()?, [7]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn as_buffer(&self) -> &DeviceBuffer<T> {
        &self.buffer
    }

    /// The box as a buffer of one value, to be written to.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let mut counter = cuguard::DeviceBox::new(&context, &7)?;
    /// counter.as_buffer_mut().copy_from_slice(&[8])?;
    /// assert_eq!(counter.get()?, 8);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    pub fn as_buffer_mut(&mut self) -> &mut DeviceBuffer<T> {
        &mut self.buffer
    }

    /// Frees the memory and tells whether the driver took it.
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
        self.buffer.claim.close("DeviceBox::close")
    }
}
