//! Prefetches of managed memory, and advice on its use.

use cuguard_driver::result::{device, memory};
use cuguard_driver::sys::{CUdevice, device_attribute, mem_advise};
use cust_core::DeviceCopy;

use super::managed_buffer::NOT_CONCURRENT;
use crate::core::{Entered, same_context};
use crate::error::{Error, Result};
use crate::guards::{Device, ManagedBuffer, Stream};

/// Where managed memory is, or who accesses it.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::memory::MemoryLocation;
/// use cuguard::{Context, ManagedBuffer, Stream};
///
/// let context = Context::new(0)?;
/// let stream = Stream::new(&context)?;
/// let buffer = ManagedBuffer::<u32>::zeroed(&context, 1000)?;
/// buffer.prefetch(&stream, MemoryLocation::Device(0))?;
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryLocation {
    /// The host.
    Host,
    /// The device with this ordinal.
    Device(u32),
}

/// Advice on the use of managed memory (`cuMemAdvise`); see [`ManagedBuffer::advise`]. It never changes what a program
/// computes, only how often memory migrates.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// # let context = cuguard::Context::new(0)?;
/// use cuguard::memory::{ManagedAdvice, MemoryLocation};
/// use cuguard::ManagedBuffer;
///
/// let table = ManagedBuffer::from_slice(&context, &[1, 2, 3])?;
/// table.advise(ManagedAdvice::ReadMostly)?;
/// table.advise(ManagedAdvice::AccessedBy(MemoryLocation::Device(0)))?;
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ManagedAdvice {
    /// It is read often and written seldom: every processor that reads it may keep a copy.
    ReadMostly,
    /// Revokes `ReadMostly`.
    NotReadMostly,
    /// It should stay there, and others access it remotely where they can.
    PreferredLocation(MemoryLocation),
    /// Revokes `PreferredLocation`.
    NoPreferredLocation,
    /// It should be mapped for that processor, so that its accesses cause no page faults.
    AccessedBy(MemoryLocation),
    /// Revokes `AccessedBy`.
    NotAccessedBy(MemoryLocation),
}

impl ManagedAdvice {
    /// The driver's constant, and the location.
    fn parts(self) -> (u32, MemoryLocation) {
        match self {
            Self::ReadMostly => (mem_advise::SET_READ_MOSTLY, MemoryLocation::Host),
            Self::NotReadMostly => (mem_advise::UNSET_READ_MOSTLY, MemoryLocation::Host),
            Self::PreferredLocation(location) => (mem_advise::SET_PREFERRED_LOCATION, location),
            Self::NoPreferredLocation => {
                (mem_advise::UNSET_PREFERRED_LOCATION, MemoryLocation::Host)
            }
            Self::AccessedBy(location) => (mem_advise::SET_ACCESSED_BY, location),
            Self::NotAccessedBy(location) => (mem_advise::UNSET_ACCESSED_BY, location),
        }
    }
}

impl From<Device> for MemoryLocation {
    fn from(device: Device) -> Self {
        Self::Device(device.ordinal())
    }
}

impl MemoryLocation {
    /// The driver's number of the location. Fails for a device that does not exist, or that cannot access managed memory
    /// while the host does.
    fn to_device(self, entered: &Entered<'_>) -> Result<CUdevice> {
        const HOST: CUdevice = -1;
        let Self::Device(ordinal) = self else {
            return Ok(HOST);
        };
        let count = entered.check(device::count())?;
        if ordinal >= count {
            return Err(Error::NoSuchDevice {
                operation: entered.operation(),
                ordinal,
                count,
            });
        }
        let attribute = device_attribute::CONCURRENT_MANAGED_ACCESS;
        // Fits, as it is less than the count.
        let device = ordinal as CUdevice;
        if entered.check(device::attribute(attribute, device))? == 0 {
            entered.check(Err(NOT_CONCURRENT))?;
        }
        Ok(device)
    }
}

impl<T: DeviceCopy> ManagedBuffer<T> {
    /// Migrates the memory to a device or to the host, in the order of `stream`. Does not wait.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// use cuguard::memory::MemoryLocation;
    /// use cuguard::ManagedBuffer;
    ///
    /// let buffer = ManagedBuffer::from_slice(&context, &[1, 2, 3])?;
    /// buffer.prefetch(&stream, context.device())?;
    /// // ... launch kernels on the stream ...
    /// buffer.prefetch(&stream, MemoryLocation::Host)?;
    /// stream.synchronize()?;
    /// assert_eq!(buffer.as_slice(&context)?, [1, 2, 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchDevice`]; [`Error::WrongContext`] if the stream belongs to another context;
    /// [`Error::ContextClosed`]; or any other driver error: `CUDA_ERROR_NOT_SUPPORTED` if the device has no concurrent
    /// managed access.
    #[doc(alias = "cuMemPrefetchAsync")]
    pub fn prefetch(&self, stream: &Stream, to: impl Into<MemoryLocation>) -> Result<()> {
        const OPERATION: &str = "ManagedBuffer::prefetch";
        let stream_of = ("the stream", stream.state());
        same_context::check(OPERATION, ("the buffer", self.state()), stream_of)?;
        let entered = self.state().enter(OPERATION)?;
        let (range, device) = (self.device_memory(), to.into().to_device(&entered)?);
        let (address, bytes) = (range.address(), range.bytes());
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: `cuMemFree` and teardown wait for the device. The stream is alive.
        let enqueued = unsafe {
            memory::prefetch_async(address, bytes, device, stream.stream_state().handle())
        };
        entered.check_bytes(enqueued, bytes)
    }

    /// Advises the driver on the use of the memory.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// use cuguard::memory::{ManagedAdvice, MemoryLocation};
    /// use cuguard::{Error, ManagedBuffer};
    ///
    /// let buffer = ManagedBuffer::from_slice(&context, &[1, 2, 3])?;
    /// buffer.advise(ManagedAdvice::PreferredLocation(MemoryLocation::Host))?;
    /// buffer.advise(ManagedAdvice::NoPreferredLocation)?;
    /// let advice = ManagedAdvice::AccessedBy(MemoryLocation::Device(99));
    /// assert!(matches!(buffer.advise(advice), Err(Error::NoSuchDevice { ordinal: 99, .. })));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`prefetch`](Self::prefetch).
    #[doc(alias = "cuMemAdvise")]
    pub fn advise(&self, advice: ManagedAdvice) -> Result<()> {
        let entered = self.state().enter("ManagedBuffer::advise")?;
        let (advice, location) = advice.parts();
        let (range, device) = (self.device_memory(), location.to_device(&entered)?);
        let (address, bytes) = (range.address(), range.bytes());
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the memory is allocated: its context is open, and the buffer is borrowed.
        entered.check_bytes(
            unsafe { memory::advise(address, bytes, advice, device) },
            bytes,
        )
    }
}
