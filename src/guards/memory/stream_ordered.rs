//! Stream-ordered device memory (`cuMemAllocAsync`): allocated, used and freed in the order of a stream.

use std::panic::Location;
use std::sync::Arc;

use bytemuck::Zeroable;
use cuguard_driver::result::{self, memory};
use cuguard_driver::sys::CUdeviceptr;
use cust_core::DeviceCopy;

use crate::core::{
    self, DriverPoolState, Failed, OwnedResource, Owner, Request, StreamState, VirtualPool,
    same_context,
};
use crate::error::{Error, Result};
use crate::guards::memory::PoolRef;
use crate::guards::{DeviceBuffer, Stream, bytes_of};
use crate::recovery;
use cuguard_registry::ResourceKind;

/// Allocates from the device's default pool. Not generic, so compiled once.
///
/// The hot path of every stream-ordered allocation, so the first attempt is inlined here, and `retry` gets its
/// arguments one by one: what it borrowed would be in memory, not in registers.
#[track_caller]
fn allocate(
    operation: &'static str,
    stream: &Arc<StreamState>,
    bytes: usize,
    type_name: &'static str,
) -> Result<OwnedResource> {
    let site = Location::caller();
    let request = request(operation, bytes, site);
    match attempt(&request, stream, type_name) {
        Ok(owned) => Ok(owned),
        Err(failed) => retry(failed, operation, stream, bytes, type_name, site),
    }
}

#[cold]
#[inline(never)]
fn retry(
    failed: Failed,
    operation: &'static str,
    stream: &Arc<StreamState>,
    bytes: usize,
    type_name: &'static str,
    site: &'static Location<'static>,
) -> Result<OwnedResource> {
    let request = request(operation, bytes, site);
    recovery::retry(failed, stream.state(), &request, &|| {
        attempt(&request, stream, type_name)
    })
}

#[inline(always)]
fn attempt(
    request: &Request,
    stream: &Arc<StreamState>,
    type_name: &'static str,
) -> Result<OwnedResource, Failed> {
    let owner = || Owner::from(stream);
    attempt_by(request, stream, type_name, owner, || {
        // SAFETY: the stream is alive.
        unsafe { memory::alloc_async(request.bytes, stream.handle()) }
    })
}

/// The same from `pool`.
#[track_caller]
fn allocate_in(
    operation: &'static str,
    pool: &Arc<DriverPoolState>,
    stream: &Arc<StreamState>,
    bytes: usize,
    type_name: &'static str,
) -> Result<OwnedResource> {
    let state = stream.state();
    same_context::check(operation, ("the pool", pool.state()), ("the stream", state))?;
    let request = request(operation, bytes, Location::caller());
    recovery::with_recovery(state, &request, || {
        let owner = || Owner::Pool(Box::new((pool.clone(), stream.clone())));
        attempt_by(&request, stream, type_name, owner, || {
            // SAFETY: stream and pool are alive and of one context.
            unsafe { memory::alloc_from_pool_async(bytes, pool.handle(), stream.handle()) }
        })
    })
}

/// The same from a pool of cuguard, where [`core::allocate_cached`] has no block.
#[inline(never)]
fn allocate_in_pool(
    operation: &'static str,
    pool: &Arc<VirtualPool>,
    stream: &Arc<StreamState>,
    bytes: usize,
    type_name: &'static str,
    site: &'static Location<'static>,
) -> Result<OwnedResource> {
    match attempt_in_pool(operation, pool, stream, bytes, type_name, site) {
        Ok(owned) => Ok(owned),
        Err(failed) => retry_in_pool(failed, operation, pool, stream, bytes, type_name, site),
    }
}

#[cold]
#[inline(never)]
fn retry_in_pool(
    failed: Failed,
    operation: &'static str,
    pool: &Arc<VirtualPool>,
    stream: &Arc<StreamState>,
    bytes: usize,
    type_name: &'static str,
    site: &'static Location<'static>,
) -> Result<OwnedResource> {
    let request = Request {
        kind: Some(ResourceKind::Pooled),
        ..request(operation, bytes, site)
    };
    recovery::retry(failed, stream.state(), &request, &|| {
        attempt_in_pool(operation, pool, stream, bytes, type_name, site)
    })
}

#[inline(always)]
fn attempt_in_pool(
    operation: &'static str,
    pool: &Arc<VirtualPool>,
    stream: &Arc<StreamState>,
    bytes: usize,
    type_name: &'static str,
    site: &'static Location<'static>,
) -> Result<OwnedResource, Failed> {
    let state = stream.state();
    if !pool.is_of(state) || stream.is_per_thread() {
        return Err(refuse(operation, pool, stream).into());
    }
    let Some(_inside) = state.try_enter() else {
        // `enter` returns the matching error.
        state.enter(operation)?;
        return Err(Error::ContextClosed { operation }.into());
    };
    let request = request(operation, bytes, site);
    core::allocate_in_pool(&request, pool, stream, type_name)
}

/// The error of a stream that the pool cannot allocate on.
#[cold]
fn refuse(operation: &'static str, pool: &VirtualPool, stream: &StreamState) -> Error {
    if stream.is_per_thread() {
        return Error::NullHandle {
            operation,
            argument: "the stream",
            reason: "is the per-thread default stream, another one on every thread; a pool needs a stream of its own",
        };
    }
    let stream_of = ("the stream", stream.state());
    match pool.state() {
        Some(state) => match same_context::check(operation, ("the pool", &state), stream_of) {
            Err(error) => error,
            Ok(()) => Error::ContextClosed { operation },
        },
        None => Error::ContextClosed { operation },
    }
}

#[inline(always)]
fn request(operation: &'static str, bytes: usize, site: &'static Location<'static>) -> Request {
    Request {
        operation,
        kind: Some(ResourceKind::StreamOrdered),
        bytes,
        site,
    }
}

#[inline(always)]
fn attempt_by(
    request: &Request,
    stream: &Arc<StreamState>,
    type_name: &'static str,
    owner: impl FnOnce() -> Owner,
    call: impl FnOnce() -> result::Result<CUdeviceptr>,
) -> Result<OwnedResource, Failed> {
    let (state, operation) = (stream.state(), request.operation);
    let Some(_inside) = state.try_enter() else {
        // `enter` returns the matching error.
        state.enter(operation)?;
        return Err(Error::ContextClosed { operation }.into());
    };
    if stream.is_default() {
        let _entered = state.enter(operation)?;
        return core::allocate(
            state,
            request,
            ResourceKind::StreamOrdered,
            type_name,
            owner,
            call,
        );
    }
    core::allocate(
        state,
        request,
        ResourceKind::StreamOrdered,
        type_name,
        owner,
        call,
    )
}

impl<T: DeviceCopy> DeviceBuffer<T> {
    /// Allocates uninitialized memory for `len` values on a stream.
    #[inline]
    #[track_caller]
    pub(crate) fn allocate_on(
        operation: &'static str,
        pool: PoolRef<'_>,
        stream: &Arc<StreamState>,
        len: usize,
    ) -> Result<Self> {
        let bytes = bytes_of::<T>(operation, len)?;
        let (type_name, site) = (std::any::type_name::<T>(), Location::caller());
        let of_cuguard = match pool {
            PoolRef::Virtual(pool) => Some(pool),
            PoolRef::Default if stream.is_per_thread() => None,
            PoolRef::Default => stream.pool_of_context(),
            PoolRef::Driver(_) => None,
        };
        // The hot path of a pool is one call, and apart from the others: the buffer is then made of what is in registers.
        if let Some(pool) = of_cuguard
            && let Some(block) = core::allocate_cached(pool, stream, bytes, type_name, site)
        {
            let owned = OwnedResource::of_block(block, bytes as u64);
            return Self::new(operation, len, owned);
        }
        let owned = match (of_cuguard, pool) {
            (Some(pool), _) => allocate_in_pool(operation, pool, stream, bytes, type_name, site)?,
            (None, PoolRef::Driver(pool)) => {
                allocate_in(operation, pool, stream, bytes, type_name)?
            }
            (None, _) => allocate(operation, stream, bytes, type_name)?,
        };
        Self::new(operation, len, owned)
    }

    /// The same, with every byte zero.
    #[track_caller]
    pub(crate) fn allocate_zeroed(
        operation: &'static str,
        pool: PoolRef<'_>,
        stream: &Arc<StreamState>,
        len: usize,
    ) -> Result<Self>
    where
        T: Zeroable,
    {
        let buffer = Self::allocate_on(operation, pool, stream, len)?;
        if buffer.size_in_bytes() != 0 {
            let entered = buffer.state().enter(operation)?;
            // SAFETY: nothing else refers to the new allocation.
            unsafe { buffer.memory().zero(&entered)? };
        }
        Ok(buffer)
    }

    /// Records that work on another stream uses this buffer: the free is ordered after all work that is enqueued on
    /// `stream` so far: the home stream waits for that work before it frees. Needed for stream-ordered buffers and for all
    /// buffers of a [`Pool`](crate::Pool), whose drop does not wait for the device; not for work in a [`Stream::scope`], which
    /// waits at its end. For other buffers it does nothing: their free waits for the device.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::{Context, DeviceBuffer, Stream};
    ///
    /// let context = Context::new(0)?;
    /// let (home, other) = (Stream::new(&context)?, Stream::new(&context)?);
    /// let buffer = DeviceBuffer::<u8>::zeroed(&home, 1000)?;
    /// // ... launch a kernel on `other` that reads the buffer ...
    /// buffer.record_stream(&other)?;
    /// drop(buffer); // freed on `home`, after the kernel on `other`
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::WrongContext`], [`Error::ContextClosed`], or any other driver error.
    pub fn record_stream(&self, stream: &Stream) -> Result<()> {
        const OPERATION: &str = "DeviceBuffer::record_stream";
        let stream_of = ("the stream", stream.state());
        same_context::check(OPERATION, ("the buffer", self.state()), stream_of)?;
        match self.home() {
            Some(home) => home.order_after(OPERATION, stream.stream_state()),
            // No order is needed: `cuMemFree` waits for the device.
            None => self.state().enter(OPERATION).map(drop),
        }
    }

    /// As [`from_raw`](Self::from_raw), for stream-ordered memory, which is freed on `stream`.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// use cuguard::DeviceBuffer;
    ///
    /// let address = DeviceBuffer::<u8>::zeroed(&stream, 3)?.into_raw();
    /// // SAFETY: address and length of the buffer released above, of the same stream.
    /// let buffer = unsafe { DeviceBuffer::<u8>::from_raw_on(&stream, address, 3) };
    /// assert_eq!(buffer.to_vec()?, [0, 0, 0]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// The address was returned by `cuMemAllocAsync` or `cuMemAllocFromPoolAsync`, or by `into_raw` of a buffer of a
    /// [`Pool`](crate::Pool); `stream` is ordered after that allocation, the memory holds `len` valid and aligned values of `T`,
    /// and nothing else frees it. The address may be 0 only if `len` values of `T` need no memory.
    ///
    /// Memory of a `Pool` is freed into the pool, so work on other streams must be complete or
    /// [recorded](Self::record_stream) when the buffer is dropped. If `stream` is the per-thread default stream, that memory
    /// is freed in the order of the default stream of the context, which waits for the per-thread ones.
    #[track_caller]
    pub unsafe fn from_raw_on(stream: &Stream, address: CUdeviceptr, len: usize) -> Self {
        let owner = Owner::from(stream.stream_state());
        Self::from_address(owner, ResourceKind::StreamOrdered, address, len)
    }
}
