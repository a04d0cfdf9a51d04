//! Stream-ordered device memory: allocated, used and freed in the order of a stream's work.

use std::panic::Location;
use std::sync::Arc;

use bytemuck::Zeroable;
use cuguard_driver::result::memory;
use cuguard_driver::sys::CUdeviceptr;
use cust::memory::DeviceCopy;

use crate::core::{self, OwnedResource, Owner, Request, StreamState, same_context};
use crate::error::{Error, Result};
use crate::guards::{DeviceBuffer, MemoryPool, Stream, bytes_of};
use crate::recovery;
use cuguard_registry::Kind;

/// Allocates stream-ordered memory, from a pool or from the device's. One function for all types.
#[track_caller]
fn allocate(
    operation: &'static str,
    pool: Option<&MemoryPool>,
    stream: &Arc<StreamState>,
    bytes: usize,
    type_name: &'static str,
) -> Result<OwnedResource> {
    let state = stream.state();
    if let Some(pool) = pool {
        let pool_of = ("the pool", pool.state());
        same_context::check(operation, pool_of, ("the stream", state))?;
    }
    let request = Request {
        operation,
        kind: Some(Kind::StreamOrdered),
        bytes,
        site: Location::caller(),
    };
    recovery::satisfy(state, &request, || {
        let Some(_inside) = state.try_enter() else {
            // Returns why.
            state.enter(operation)?;
            return Err(Error::ContextClosed { operation }.into());
        };
        let owner = match pool {
            None => Owner::from(stream),
            Some(pool) => Owner::Pool(Box::new((pool.core().clone(), stream.clone()))),
        };
        core::allocate(owner, &request, Kind::StreamOrdered, type_name, || {
            let stream = stream.handle();
            // SAFETY: stream and pool are alive.
            unsafe {
                match pool {
                    None => memory::alloc_async(bytes, stream),
                    Some(pool) => memory::alloc_from_pool_async(bytes, pool.as_raw(), stream),
                }
            }
        })
    })
}

impl<T: DeviceCopy> DeviceBuffer<T> {
    /// Memory for `len` values in the order of a stream, from a pool or from the device's own.
    #[track_caller]
    fn allocate_on(
        operation: &'static str,
        pool: Option<&MemoryPool>,
        stream: &Stream,
        len: usize,
    ) -> Result<Self> {
        let bytes = bytes_of::<T>(operation, len)?;
        let type_name = std::any::type_name::<T>();
        let owned = allocate(operation, pool, stream.core(), bytes, type_name)?;
        Ok(Self::assemble(len, owned))
    }

    /// As [`zeroed`](Self::zeroed), but stream-ordered: allocated, cleared and freed in the order
    /// of the stream's work, from the device's memory pool, without waiting for anything.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::{Context, DeviceBuffer, Stream};
    ///
    /// let context = Context::new(0)?;
    /// let stream = Stream::new(&context)?;
    /// let buffer = DeviceBuffer::<u8>::zeroed_on(&stream, 1 << 20)?;
    /// drop(buffer); // freed when the stream gets there
    /// stream.synchronize()?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`zeroed`](Self::zeroed).
    #[track_caller]
    pub fn zeroed_on(stream: &Stream, len: usize) -> Result<Self>
    where
        T: Zeroable,
    {
        const OPERATION: &str = "DeviceBuffer::zeroed_on";
        let mut buffer = Self::allocate_on(OPERATION, None, stream, len)?;
        buffer.clear(OPERATION)?;
        Ok(buffer)
    }

    /// As [`zeroed_on`](Self::zeroed_on), from a pool of the program's own.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// let pool = cuguard::MemoryPool::new(&context)?;
    /// let buffer = cuguard::DeviceBuffer::<u8>::zeroed_in(&pool, &stream, 3)?;
    /// assert_eq!(buffer.to_vec()?, [0, 0, 0]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`zeroed`](Self::zeroed); [`Error::WrongContext`] if pool and stream are not of one
    /// context.
    #[track_caller]
    pub fn zeroed_in(pool: &MemoryPool, stream: &Stream, len: usize) -> Result<Self>
    where
        T: Zeroable,
    {
        const OPERATION: &str = "DeviceBuffer::zeroed_in";
        let mut buffer = Self::allocate_on(OPERATION, Some(pool), stream, len)?;
        buffer.clear(OPERATION)?;
        Ok(buffer)
    }

    /// As [`uninitialized`](Self::uninitialized), but stream-ordered.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// // SAFETY: written in the next line.
    /// let mut buffer = unsafe { cuguard::DeviceBuffer::uninitialized_on(&stream, 3)? };
    /// buffer.copy_from_slice(&[1, 2, 3])?;
    /// assert_eq!(buffer.to_vec()?, [1, 2, 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// Every value must be written before it is read.
    ///
    /// # Errors
    ///
    /// As [`zeroed`](Self::zeroed).
    #[track_caller]
    pub unsafe fn uninitialized_on(stream: &Stream, len: usize) -> Result<Self> {
        Self::allocate_on("DeviceBuffer::uninitialized_on", None, stream, len)
    }

    /// As [`uninitialized_on`](Self::uninitialized_on), from a pool of the program's own.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// let pool = cuguard::MemoryPool::new(&context)?;
    /// // SAFETY: written in the next line.
    /// let mut buffer = unsafe { cuguard::DeviceBuffer::uninitialized_in(&pool, &stream, 3)? };
    /// buffer.copy_from_slice(&[1, 2, 3])?;
    /// assert_eq!(buffer.to_vec()?, [1, 2, 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// Every value must be written before it is read.
    ///
    /// # Errors
    ///
    /// As [`zeroed_in`](Self::zeroed_in).
    #[track_caller]
    pub unsafe fn uninitialized_in(pool: &MemoryPool, stream: &Stream, len: usize) -> Result<Self> {
        Self::allocate_on("DeviceBuffer::uninitialized_in", Some(pool), stream, len)
    }

    /// Tells that work on another stream uses this buffer: work that was given to `stream` before
    /// this call is done before the buffer is freed. Only a stream-ordered buffer needs to be told,
    /// and not for work in a [`Stream::scope`], which has waited when it ends.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::{Context, DeviceBuffer, Stream};
    ///
    /// let context = Context::new(0)?;
    /// let (home, other) = (Stream::new(&context)?, Stream::new(&context)?);
    /// let buffer = DeviceBuffer::<u8>::zeroed_on(&home, 1000)?;
    /// // ... a kernel is launched on `other` that reads the buffer ...
    /// buffer.record_stream(&other)?;
    /// drop(buffer); // freed on `home`, after what `other` had to do
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::WrongContext`], [`Error::ContextClosed`], or what the driver says.
    pub fn record_stream(&self, stream: &Stream) -> Result<()> {
        const OPERATION: &str = "DeviceBuffer::record_stream";
        let stream_of = ("the stream", stream.core().state());
        same_context::check(OPERATION, ("the buffer", self.state()), stream_of)?;
        match self.home() {
            Some(home) => home.order_after(OPERATION, stream.core()),
            // There is nothing to put in order: the driver waits itself when it frees this memory.
            None => self.state().enter(OPERATION).map(drop),
        }
    }

    /// As [`from_raw`](Self::from_raw), for a stream-ordered buffer, which is freed on `stream`.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// use cuguard::DeviceBuffer;
    ///
    /// let address = DeviceBuffer::<u8>::zeroed_on(&stream, 3)?.into_raw();
    /// // SAFETY: the address and the length of a buffer of this stream, given away above.
    /// let buffer = unsafe { DeviceBuffer::<u8>::from_raw_on(&stream, address, 3) };
    /// assert_eq!(buffer.to_vec()?, [0, 0, 0]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// The address was given out by `cuMemAllocAsync` or `cuMemAllocFromPoolAsync`, in an order
    /// that this stream knows of, has `len` valid values of `T`, and nobody else frees it.
    #[track_caller]
    pub unsafe fn from_raw_on(stream: &Stream, address: CUdeviceptr, len: usize) -> Self {
        let owner = Owner::from(stream.core());
        Self::adopt(owner, Kind::StreamOrdered, address, len)
    }
}
