//! Copies within a scope. All take the destination first.

use std::ffi::c_void;

use cuguard_driver::result::{self, copy, memory};
use cuguard_driver::sys::CUstream;
use cust_core::DeviceCopy;

use super::end::PeerMemory;
use super::uses::Used;
use super::{DeviceMut, DeviceRef, HostMut, HostRef, Scope};
use crate::core::page_locked;
use crate::error::{Error, Result};
use crate::guards::check_len;

impl<'scope> Scope<'scope, '_> {
    /// Enqueues a copy from or to host memory. If another context has page-locked that memory, its teardown waits for this
    /// scope.
    fn enqueue_with_host(
        &self,
        operation: &'static str,
        memory: *const c_void,
        bytes: usize,
        call: impl FnOnce(CUstream) -> result::Result,
    ) -> Result<()> {
        let user = self.core().state();
        // First: where nothing can be enqueued, no teardown is to wait for it.
        let entered = user.enter(operation)?;
        if bytes == 0 {
            return Ok(());
        }
        page_locked::with_owner(operation, user, memory, |owner| {
            match (owner, &self.end.capture) {
                (owner, Some(_)) => {
                    let allocated = entered.check(memory::context_of(memory.addr() as u64))?;
                    if owner.is_some() || allocated.is_some_and(|other| other != user.context) {
                        // The driver's graph has the mapping of the memory. Once the other context is destroyed, the driver
                        // crashes when the graph is launched, and also when it is destroyed.
                        let reason = "memory of another context cannot be copied in a capture";
                        return Err(Error::Capture { operation, reason });
                    }
                }
                (Some(owner), None) => self.end.keep_peer(owner, PeerMemory::Host),
                (None, None) => {}
            }
            self.enqueue(operation, bytes, call)
        })
    }

    /// Copies from the host to the device.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, PinnedBuffer, Stream};
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// let input = PinnedBuffer::from_slice(&context, &[1.0, 2.0])?;
    /// let mut buffer = DeviceBuffer::zeroed(&context, 2)?;
    /// stream.scope(|s| s.upload(&mut s.bind_mut(&mut buffer)?, &s.bind_host(&input)))?;
    /// assert_eq!(buffer.to_vec()?, [1.0, 2.0]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::LengthMismatch`], [`Error::ContextClosed`], or any other driver error; for page-locked memory of another
    /// context, [`Error::HostContextClosed`], and in a capture [`Error::Capture`].
    #[doc(alias("async_copy_from", "memcpy_htod", "cuMemcpyHtoDAsync"))]
    pub fn upload<T: DeviceCopy>(
        &self,
        to: &mut DeviceMut<'scope, T>,
        from: &HostRef<'scope, T>,
    ) -> Result<()> {
        const OPERATION: &str = "Scope::upload";
        check_len(
            OPERATION,
            ("the source", from.len()),
            ("the destination", to.len()),
        )?;
        let used = [Used::Read(from.uses()), Used::Written(to.uses())];
        let (to, from, bytes) = (*to.address(), from.as_ptr().cast(), to.bytes());
        self.end.using(OPERATION, &used, || {
            self.enqueue_with_host(OPERATION, from, bytes, |stream| {
                // SAFETY: both sides have this many bytes and are borrowed until the stream is idle.
                unsafe { copy::htod_async(to, from, bytes, stream) }
            })
        })
    }

    /// Copies from the device to the host.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, PinnedBuffer, Stream};
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// let buffer = DeviceBuffer::from_slice(&context, &[1.0, 2.0])?;
    /// let mut output = PinnedBuffer::zeroed(&context, 2)?;
    /// stream.scope(|s| s.download(&mut s.bind_host_mut(&mut output), &s.bind(&buffer)?))?;
    /// assert_eq!(*output, [1.0, 2.0]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::LengthMismatch`], [`Error::ContextClosed`], or any other driver error; for page-locked memory of another
    /// context, [`Error::HostContextClosed`], and in a capture [`Error::Capture`].
    #[doc(alias("async_copy_to", "memcpy_dtoh", "cuMemcpyDtoHAsync"))]
    pub fn download<T: DeviceCopy>(
        &self,
        to: &mut HostMut<'scope, T>,
        from: &impl AsRef<DeviceRef<'scope, T>>,
    ) -> Result<()> {
        let from = from.as_ref();
        const OPERATION: &str = "Scope::download";
        check_len(
            OPERATION,
            ("the destination", to.len()),
            ("the source", from.len()),
        )?;
        let to_start = to.as_mut_ptr().cast();
        let used = [Used::Read(from.uses()), Used::Written(to.uses())];
        let (from, to, bytes) = (*from.address(), to_start, from.bytes());
        self.end.using(OPERATION, &used, || {
            self.enqueue_with_host(OPERATION, to, bytes, |stream| {
                // SAFETY: both sides have this many bytes and are borrowed until the stream is idle. Device memory holds only
                // valid values.
                unsafe { copy::dtoh_async(to, from, bytes, stream) }
            })
        })
    }

    /// Copies within device memory.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, Stream};
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// let from = DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    /// let mut to = DeviceBuffer::zeroed(&context, 3)?;
    /// stream.scope(|s| s.copy(&mut s.bind_mut(&mut to)?, &s.bind(&from)?))?;
    /// assert_eq!(to.to_vec()?, [1, 2, 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::LengthMismatch`], [`Error::ContextClosed`], or any other driver error.
    #[doc(alias("memcpy_dtod", "cuMemcpyDtoDAsync"))]
    pub fn copy<T: DeviceCopy>(
        &self,
        to: &mut DeviceMut<'scope, T>,
        from: &impl AsRef<DeviceRef<'scope, T>>,
    ) -> Result<()> {
        let from = from.as_ref();
        const OPERATION: &str = "Scope::copy";
        check_len(
            OPERATION,
            ("the source", from.len()),
            ("the destination", to.len()),
        )?;
        let used = [Used::Read(from.uses()), Used::Written(to.uses())];
        let (to, from, bytes) = (*to.address(), *from.address(), to.bytes());
        self.end.using(OPERATION, &used, || {
            self.enqueue(OPERATION, bytes, |stream| {
                // SAFETY: both sides have this many bytes and are borrowed until the stream is idle. They do not overlap: `to`
                // is exclusive.
                unsafe { copy::dtod_async(to, from, bytes, stream) }
            })
        })
    }
}
