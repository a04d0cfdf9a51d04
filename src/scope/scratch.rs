//! Scratch memory: allocated in a scope, and freed with it in stream order.

use std::panic::Location;

use bytemuck::Zeroable;
use cuguard_driver::result::{copy, memory};
use cuguard_driver::sys::{CUdeviceptr, CUresult};
use cust_core::DeviceCopy;

use super::Scope;
use super::bound::DeviceMut;
use super::uses::Used;
use crate::core::Request;
use crate::core::lock::lock;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::guards::{DeviceBuffer, PoolRef, bytes_of, check_alignment};
use crate::recovery;
use cuguard_registry::ResourceKind;

impl<'scope> Scope<'scope, '_> {
    /// Allocates memory for `len` values that lives as long as the scope, with every byte zero. Stream-ordered: allocated
    /// from the context's [pool](crate::context::ContextBuilder::pool), without one from the device's default memory pool, and freed after
    /// the scope's last work, without blocking the calling thread.
    /// In a [capture](crate::Stream::capture), the graph allocates and frees it at each launch.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, Stream};
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// let mut values = DeviceBuffer::from_slice(&context, &[1, 2, 3, 4])?;
    /// stream.scope(|s| {
    ///     let (mut front, mut back) = s.bind_mut(&mut values)?.split_at(2)?;
    ///     let mut swap = s.zeroed(2)?;
    ///     s.copy(&mut swap, &front)?;
    ///     s.copy(&mut front, &back)?;
    ///     s.copy(&mut back, &swap)
    /// })?;
    /// assert_eq!(values.to_vec()?, [3, 4, 1, 2]);
    /// assert_eq!(context.live_bytes(), 16);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`DeviceBuffer::zeroed`].
    #[track_caller]
    pub fn zeroed<T: DeviceCopy + Zeroable>(&self, len: usize) -> Result<DeviceMut<'scope, T>> {
        const OPERATION: &str = "Scope::zeroed";
        let bytes = bytes_of::<T>(OPERATION, len)?;
        if let Some(address) = self.capture_scratch(OPERATION, bytes, true)? {
            // The graph frees it, whether it is used or not.
            check_alignment::<T>(OPERATION, address)?;
            return Ok(DeviceMut::new(address, len));
        }
        let memory =
            DeviceBuffer::allocate_zeroed(OPERATION, PoolRef::Default, self.end.core(), len)?;
        self.keep(OPERATION, memory)
    }

    /// As [`zeroed`](Self::zeroed), with uninitialized memory.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// let mut seen = [0; 3];
    /// stream.scope(|s| {
    ///     // SAFETY: filled in the next line.
    ///     let mut scratch = unsafe { s.uninitialized(3)? };
    ///     s.fill(&mut scratch, 7)?;
    ///     s.download(&mut s.bind_host_mut(&mut seen), &scratch)
    /// })?;
    /// assert_eq!(seen, [7; 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// Every value must be initialized before it is read.
    ///
    /// # Errors
    ///
    /// As [`DeviceBuffer::zeroed`].
    #[track_caller]
    pub unsafe fn uninitialized<T: DeviceCopy>(&self, len: usize) -> Result<DeviceMut<'scope, T>> {
        const OPERATION: &str = "Scope::uninitialized";
        let bytes = bytes_of::<T>(OPERATION, len)?;
        if let Some(address) = self.capture_scratch(OPERATION, bytes, false)? {
            // The graph frees it, whether it is used or not.
            check_alignment::<T>(OPERATION, address)?;
            return Ok(DeviceMut::new(address, len));
        }
        let memory = DeviceBuffer::allocate_on(OPERATION, PoolRef::Default, self.end.core(), len)?;
        self.keep(OPERATION, memory)
    }

    /// Allocates memory in the graph, for the rest of the capture. `None` outside of a capture.
    #[track_caller]
    fn capture_scratch(
        &self,
        operation: &'static str,
        bytes: usize,
        zeroed: bool,
    ) -> Result<Option<CUdeviceptr>> {
        let Some(capture) = &self.end.capture else {
            return Ok(None);
        };
        let handle = self.core().handle();
        let entered = self.core().state().enter(operation)?;
        if bytes == 0 {
            return Ok(Some(0));
        }
        self.core().state().captures.note_allocation();
        // SAFETY: the stream is alive.
        let allocated = unsafe { memory::alloc_async(bytes, handle) };
        if let Err(error) = allocated
            && error.code == CUresult::OUT_OF_MEMORY
        {
            drop(entered);
            let request = Request {
                operation,
                kind: Some(ResourceKind::StreamOrdered),
                bytes,
                site: Location::caller(),
            };
            // Not attempted again: a call that failed may have ended the capture.
            return Err(recovery::diagnose(self.core().state(), &request, error));
        }
        let address = entered.check_bytes(allocated, bytes)?;
        lock(&capture.scratch).push((address, bytes));
        if zeroed {
            // SAFETY: allocated above, with this many bytes.
            let cleared = unsafe { copy::set_d8_async(address, 0, bytes, handle) };
            entered.check_bytes(cleared, bytes)?;
        }
        Ok(Some(address))
    }

    /// The scope owns the memory from now on, and only its work can use it.
    fn keep<T: DeviceCopy>(
        &self,
        operation: &'static str,
        memory: DeviceBuffer<T>,
    ) -> Result<DeviceMut<'scope, T>> {
        let bound = DeviceMut::new(memory.address(), memory.len());
        // Not before it is allocated: where the driver permits no call, nothing is in flight, and nothing could be waited for.
        self.end.expect_work();
        self.end.keep_scratch(memory.into_owned());
        // Allocated, and cleared, on this stream.
        let used = [Used::Written(bound.uses())];
        self.end.using(operation, &used, || Ok(()))?;
        Ok(bound)
    }
}
