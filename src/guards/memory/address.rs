//! The address of a buffer, for code that works on the memory without a borrow of it.

use cust_core::DeviceCopy;

use cuguard_sync::process;

use crate::guards::{DeviceBuffer, DevicePointer};

impl<T: DeviceCopy> DeviceBuffer<T> {
    /// The address of the memory, for code that works on it on the default stream, such as `cust`. Waits for the stream of a
    /// stream-ordered buffer; its free waits for the default stream.
    ///
    /// A buffer of a [`Pool`](crate::Pool) is [pinned](crate::Pool::pin) from then on until it is dropped. The address of a
    /// [view](crate::DeviceView::as_device_ptr) or of a binding in a [`Scope`](crate::Scope) does neither.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let buffer = cuguard::DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    /// assert!(!buffer.as_device_ptr().is_null());
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Panics
    ///
    /// If the context was closed, because the address may be reused; if the process is exiting, because the driver may
    /// be unloaded; if the context of a stream-ordered buffer cannot be made current, because its stream cannot be
    /// synchronized.
    #[must_use]
    #[track_caller]
    pub fn as_device_ptr(&self) -> DevicePointer<T> {
        self.expose("DeviceBuffer::as_device_ptr");
        DevicePointer::from_raw(self.address())
    }

    /// Makes the memory safe to access for code that knows neither closed contexts nor stream order. Panics as
    /// [`as_device_ptr`](Self::as_device_ptr).
    #[track_caller]
    pub(crate) fn expose(&self, operation: &'static str) {
        assert!(
            !self.state().is_closed(),
            "{operation}: the context was closed"
        );
        assert!(!process::is_exiting(), "{operation}: the process is ending");
        if self.home().is_none() {
            return;
        }
        // Other code works on the default stream: its work must start after that of the home stream, and end before the
        // free.
        match self.state().enter(operation) {
            Ok(entered) => {
                self.owned.expose();
                // The driver returns this error again from the next call.
                drop(self.memory().wait(&entered));
            }
            Err(error) => panic!("{error}"),
        }
    }
}
