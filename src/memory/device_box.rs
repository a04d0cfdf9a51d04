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
    /// # Errors
    ///
    /// [`ContextClosed`](crate::Error::ContextClosed), or what the driver says.
    pub fn get(&self) -> Result<T> {
        self.buffer.first("DeviceBox::get")
    }

    /// Copies `value` to the device.
    ///
    /// # Errors
    ///
    /// [`ContextClosed`](crate::Error::ContextClosed), or what the driver says.
    pub fn set(&mut self, value: &T) -> Result<()> {
        let value = std::slice::from_ref(value);
        self.buffer.write("DeviceBox::set", value)
    }

    /// Gives the box a name that reports show.
    #[must_use = "the box is handed back"]
    pub fn named(self, label: &str) -> Self {
        Self {
            buffer: self.buffer.named(label),
        }
    }

    /// The device address, for kernels.
    #[must_use]
    pub fn as_device_ptr(&self) -> DevicePointer<T> {
        DevicePointer::from_raw(self.buffer.address())
    }

    /// The box as a buffer of one value.
    pub fn as_buffer(&self) -> &DeviceBuffer<T> {
        &self.buffer
    }

    /// The box as a buffer of one value, to be written to.
    pub fn as_buffer_mut(&mut self) -> &mut DeviceBuffer<T> {
        &mut self.buffer
    }

    /// Frees the memory and tells whether the driver took it.
    ///
    /// # Errors
    ///
    /// As [`DeviceBuffer::close`].
    pub fn close(self) -> Result<()> {
        self.buffer.claim.close("DeviceBox::close")
    }
}
