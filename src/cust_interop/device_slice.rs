//! `Deref` to `cust`'s `DeviceSlice`.

use std::ops::{Deref, DerefMut};

use cust::memory::DeviceSlice;
use cust_core::DeviceCopy;

use crate::guards::DeviceBuffer;

const OPERATION: &str = "DeviceBuffer::deref";

impl<T: DeviceCopy> Deref for DeviceBuffer<T> {
    type Target = DeviceSlice<T>;

    /// The buffer as a slice of `cust`. Waits for the stream of a stream-ordered buffer.
    ///
    /// A buffer of a [`Pool`](crate::Pool) is [pinned](crate::Pool::pin) from then on until it is dropped: a compaction cannot
    /// stop what `cust` does with the slice. The methods of the buffer itself but for
    /// [`as_device_ptr`](DeviceBuffer::as_device_ptr), and of its [views](crate::DeviceView), pin nothing.
    ///
    /// # Panics
    ///
    /// As [`as_device_ptr`](DeviceBuffer::as_device_ptr).
    #[track_caller]
    fn deref(&self) -> &DeviceSlice<T> {
        self.expose(OPERATION);
        &self.slice
    }
}

impl<T: DeviceCopy> DerefMut for DeviceBuffer<T> {
    #[track_caller]
    fn deref_mut(&mut self) -> &mut DeviceSlice<T> {
        self.expose(OPERATION);
        &mut self.slice
    }
}
