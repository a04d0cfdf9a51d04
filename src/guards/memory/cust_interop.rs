//! `Deref` to `cust`'s `DeviceSlice`.

use std::ops::{Deref, DerefMut};

use cust::memory::{DeviceCopy, DeviceSlice};

use cuguard_sync::process;

use crate::guards::DeviceBuffer;

impl<T: DeviceCopy> DeviceBuffer<T> {
    /// Makes the memory safe to access for `cust`, which knows neither closed contexts nor stream order.
    #[track_caller]
    fn prepare_for_cust(&self) {
        const OPERATION: &str = "DeviceBuffer::deref";
        assert!(
            !self.state().is_closed(),
            "{OPERATION}: the context was closed"
        );
        assert!(!process::is_exiting(), "{OPERATION}: the process is ending");
        if self.home().is_none() {
            return;
        }
        // `cust` works on the default stream: its work must start after that of the home stream, and end before the
        // free.
        match self.state().enter(OPERATION) {
            Ok(entered) => {
                self.owned.share_with_cust();
                // The driver returns this error again from the next call of `cust`.
                drop(self.memory().wait(&entered));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

impl<T: DeviceCopy> Deref for DeviceBuffer<T> {
    type Target = DeviceSlice<T>;

    /// The buffer as a slice of `cust`. Waits for the stream of a stream-ordered buffer.
    ///
    /// A buffer of a [`Pool`](crate::Pool) is [pinned](crate::Pool::pin) from then on until it is dropped: a compaction cannot
    /// stop what `cust` does with the slice. The methods of the buffer itself, and of its [views](crate::DeviceView), pin
    /// nothing.
    ///
    /// # Panics
    ///
    /// If the context was closed, because the address may be reused; if the process is exiting, because the driver may
    /// be unloaded; if the context of a stream-ordered buffer cannot be made current, because its stream cannot be
    /// synchronized.
    #[track_caller]
    fn deref(&self) -> &DeviceSlice<T> {
        self.prepare_for_cust();
        &self.slice
    }
}

impl<T: DeviceCopy> DerefMut for DeviceBuffer<T> {
    #[track_caller]
    fn deref_mut(&mut self) -> &mut DeviceSlice<T> {
        self.prepare_for_cust();
        &mut self.slice
    }
}
