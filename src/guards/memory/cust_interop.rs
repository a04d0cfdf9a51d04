//! What `cust` sees of a buffer.

use std::ops::{Deref, DerefMut};

use cust::memory::{DeviceCopy, DeviceSlice};

use cuguard_sync::process;

use crate::guards::DeviceBuffer;

impl<T: DeviceCopy> DeviceBuffer<T> {
    /// Before `cust` gets at the memory, which knows neither of contexts that are closed nor of
    /// stream-ordered memory that is still being written.
    #[track_caller]
    fn prepare_for_cust(&self) {
        const OPERATION: &str = "DeviceBuffer::deref";
        assert!(
            !self.state().is_closed(),
            "{OPERATION}: its context was closed"
        );
        assert!(!process::is_exiting(), "{OPERATION}: the process is ending");
        if self.home().is_none() {
            return;
        }
        // The memory may still be being written, and what `cust` does with it is ordered before its
        // free, which must not be forgotten either.
        self.owned.share_with_cust();
        match self.state().enter(OPERATION) {
            // An error here comes back from whatever `cust` does next.
            Ok(entered) => drop(self.settle(&entered)),
            Err(error) => panic!("{error}"),
        }
    }
}

impl<T: DeviceCopy> Deref for DeviceBuffer<T> {
    type Target = DeviceSlice<T>;

    /// What `cust` sees. Waits for the stream of a stream-ordered buffer.
    ///
    /// # Panics
    ///
    /// If the context was closed: the memory may be somebody else's then. If the process is ending:
    /// the driver may be gone. If the driver refuses to make the context of a stream-ordered buffer
    /// current: nobody could wait for its stream.
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
