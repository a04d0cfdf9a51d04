//! Stream-ordered device memory: allocated, used and freed in the order of a stream's work.

use std::panic::Location;
use std::sync::Arc;

use bytemuck::Zeroable;
use cuguard_driver::api;
use cuguard_driver::sys::CUdeviceptr;
use cust::memory::DeviceCopy;

use crate::core::{Failed, OwnedResource, Owner, Request, StreamState, key, same_context};
use crate::error::{Error, Result};
use crate::guards::{DeviceBuffer, MemoryPool, Stream, bytes_of};
use crate::recovery;
use cuguard_registry::{Entry, Kind};

/// Takes memory in the order of a stream, from a pool or from the device's own. One function for
/// all types of elements.
#[track_caller]
fn take(
    operation: &'static str,
    pool: Option<&MemoryPool>,
    core: &Arc<StreamState>,
    bytes: usize,
    type_name: &'static str,
) -> Result<OwnedResource> {
    let state = core.state();
    if let Some(pool) = pool {
        let pool_of = ("the pool", pool.state());
        same_context::check(operation, pool_of, ("the stream", state))?;
    }
    let site = Location::caller();
    match ask(operation, site, pool, core, bytes, type_name) {
        Ok(owned) => Ok(owned),
        Err(failed) => ask_again(failed, operation, site, pool, core, bytes, type_name),
    }
}

#[cold]
#[inline(never)]
fn ask_again(
    failed: Failed,
    operation: &'static str,
    site: &'static Location<'static>,
    pool: Option<&MemoryPool>,
    core: &Arc<StreamState>,
    bytes: usize,
    type_name: &'static str,
) -> Result<OwnedResource> {
    let request = Request {
        operation,
        kind: Some(Kind::StreamOrdered),
        bytes,
        site,
    };
    recovery::retry(failed, core.state(), &request, &|| {
        ask(operation, site, pool, core, bytes, type_name)
    })
}

/// Asks the driver once.
#[inline(always)]
fn ask(
    operation: &'static str,
    site: &'static Location<'static>,
    pool: Option<&MemoryPool>,
    core: &Arc<StreamState>,
    bytes: usize,
    type_name: &'static str,
) -> Result<OwnedResource, Failed> {
    let state = core.state();
    let Some(_inside) = state.pass_in() else {
        // Says why.
        state.enter(operation)?;
        return Err(Error::ContextClosed { operation }.into());
    };
    if bytes == 0 {
        return Ok(OwnedResource::nothing(core.into(), Kind::StreamOrdered));
    }
    if state.budget.is_limited() {
        state.budget.take(Kind::StreamOrdered, bytes as u64)?;
    }
    let mut address = 0;
    let (out, on) = (&mut address, core.handle());
    // SAFETY: the variable can be written to; stream and pool are alive.
    let (function, code) = unsafe {
        match pool {
            None => ("cuMemAllocAsync", api::cuMemAllocAsync(out, bytes, on)),
            Some(pool) => (
                "cuMemAllocFromPoolAsync",
                api::cuMemAllocFromPoolAsync(out, bytes, pool.as_raw(), on),
            ),
        }
    };
    if !code.is_success() {
        return Err(Failed::by_driver(
            state,
            operation,
            function,
            code,
            (Kind::StreamOrdered, bytes),
        ));
    }
    let owner = match pool {
        None => Owner::from(core),
        Some(pool) => Owner::Pool(Box::new((pool.core().clone(), core.clone()))),
    };
    let entry = Entry {
        bytes: bytes as u64,
        type_name,
        stream: owner.stream(),
    };
    let key = key(Kind::StreamOrdered, address);
    Ok(OwnedResource::new_at(site, owner, key, entry))
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
        let owned = take(operation, pool, stream.core(), bytes, type_name)?;
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
