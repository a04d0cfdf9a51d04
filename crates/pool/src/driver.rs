//! What the pool needs of a driver.

use std::fmt::Debug;

/// The functions of a driver that the pool calls. None of them waits for work on the device, but
/// [`wait_for_copies`](Self::wait_for_copies).
pub trait Driver: Send + Sync {
    /// The error of a refused call.
    type Error: Copy + Debug + Send;
    /// A stream, which a block is allocated and freed on.
    type Stream: Clone + Send + Sync;
    /// A point in the order of a stream: an event. Dropping it destroys it.
    type Point: Send;

    /// A number that no other stream of the process has or had. (The driver reuses handles.)
    fn stream_id(stream: &Self::Stream) -> u64;

    /// Whether the call was refused for want of device memory.
    fn is_out_of_memory(error: &Self::Error) -> bool;

    /// Reserves a range of addresses, a multiple of 2 MiB.
    ///
    /// # Errors
    ///
    /// That of the driver. This holds for every function of this trait.
    fn reserve(&self, bytes: u64) -> Result<u64, Self::Error>;

    /// Frees a whole reserved range, with nothing mapped in it.
    fn unreserve(&self, address: u64, bytes: u64) -> Result<(), Self::Error>;

    /// Fails with out of memory where the device has less than this free. Asked before many handles are created, so that a
    /// block that cannot fit fails at once and does not take the whole device first. A driver that does not know returns `Ok`.
    fn require_free(&self, bytes: u64) -> Result<(), Self::Error> {
        let _ = bytes;
        Ok(())
    }

    /// Creates physical memory and returns its handle.
    fn create(&self, bytes: u64) -> Result<u64, Self::Error>;

    /// Releases a handle.
    fn release(&self, handle: u64) -> Result<(), Self::Error>;

    /// Maps a whole handle of this size.
    fn map(&self, address: u64, bytes: u64, handle: u64) -> Result<(), Self::Error>;

    /// Unmaps all mappings in a range, whole ones.
    fn unmap(&self, address: u64, bytes: u64) -> Result<(), Self::Error>;

    /// Permits the device to read and write a range in which everything is mapped.
    fn set_access(&self, address: u64, bytes: u64) -> Result<(), Self::Error>;

    /// Enqueues a copy within the device.
    fn copy(&self, to: u64, from: u64, bytes: u64) -> Result<(), Self::Error>;

    /// Waits until all enqueued copies are complete.
    fn wait_for_copies(&self) -> Result<(), Self::Error>;

    /// Records a point: it is complete when the stream has done all work enqueued so far.
    fn record(&self, stream: &Self::Stream) -> Result<Self::Point, Self::Error>;

    /// Whether the stream has reached the point.
    fn is_complete(&self, point: &Self::Point) -> Result<bool, Self::Error>;
}
