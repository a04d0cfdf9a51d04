//! Device memory for a slice of values.

use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;

use bytemuck::Zeroable;
use cuguard_driver::result::memory;
use cuguard_driver::sys::CUdeviceptr;
#[cfg(feature = "cust")]
use cust::memory::{DevicePointer, DeviceSlice};
use cust_core::DeviceCopy;

use super::device_memory::DeviceMemory;
use super::source::{Parts, PoolRef, Source};
use crate::core::{
    self, ContextState, Entered, Failed, OpenContext, OwnedResource, Request, StreamState,
};
use crate::error::{Error, Result};
use crate::guards::{Context, bytes_of, check_alignment};
use crate::recovery;
use cuguard_registry::ResourceKind;
use cuguard_sync::process;

/// Stream-ordered or synchronous device memory holding `len` values of `T`.
///
/// Freed on drop, on any thread; stream-ordered memory is freed on its stream without blocking. Empty buffers and
/// zero-sized types allocate nothing. What a `T` of your own must implement is listed in the
/// [guide](crate::guide::guards#element-types).
///
/// With the feature `cust`, dereferences to [`cust`'s `DeviceSlice`][slice], so `cust`'s copy traits and launch macro
/// accept it. A `DeviceSlice` that is copied out of the buffer does not keep it alive;
/// [`Stream::scope`](crate::Stream::scope) borrows the buffer instead.
///
/// [slice]: https://docs.rs/cust/0.3/cust/memory/struct.DeviceSlice.html
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, DeviceBuffer};
///
/// let context = Context::new(0)?;
/// let mut buffer = DeviceBuffer::from_slice(&context, &[1, 2, 3])?.with_label("numbers");
/// buffer.copy_from_slice(&[4, 5, 6])?;
/// assert_eq!(buffer.to_vec()?, [4, 5, 6]);
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "dropped at once if unused"]
#[doc(alias("CudaSlice", "cuMemAlloc", "cudaMalloc"))]
pub struct DeviceBuffer<T: DeviceCopy> {
    /// The target of `Deref`. Safe code can overwrite it through `DerefMut`, so address and length are read from
    /// `owned` and `len` only.
    #[cfg(feature = "cust")]
    pub(crate) slice: DeviceSlice<T>,
    elements: PhantomData<Elements<T>>,
    len: usize,
    /// Frees the memory on drop; owns nothing if the values need no memory.
    pub(super) owned: OwnedResource,
}

/// `Send` and `Sync` as `T`, and invariant as `DeviceSlice<T>` is, so that the feature `cust` changes neither.
type Elements<T> = (T, fn(T) -> T);

/// Allocates device memory and stays inside the gate, so that the caller can initialize it. Not generic, so compiled
/// once.
///
/// The first attempt is inlined here, and `retry` gets its arguments one by one: what it borrowed would be in memory,
/// not in registers.
#[track_caller]
fn allocate<'a>(
    operation: &'static str,
    context: &'a Arc<OpenContext>,
    bytes: usize,
    type_name: &'static str,
) -> Result<(Entered<'a>, OwnedResource)> {
    let site = Location::caller();
    match attempt(&request(operation, bytes, site), context, type_name) {
        Ok(allocated) => Ok(allocated),
        Err(failed) => retry(failed, operation, context, bytes, type_name, site),
    }
}

#[cold]
#[inline(never)]
fn retry<'a>(
    failed: Failed,
    operation: &'static str,
    context: &'a Arc<OpenContext>,
    bytes: usize,
    type_name: &'static str,
    site: &'static Location<'static>,
) -> Result<(Entered<'a>, OwnedResource)> {
    let request = request(operation, bytes, site);
    recovery::retry(failed, context, &request, &|| {
        attempt(&request, context, type_name)
    })
}

#[inline(always)]
fn attempt<'a>(
    request: &Request,
    context: &'a Arc<OpenContext>,
    type_name: &'static str,
) -> Result<(Entered<'a>, OwnedResource), Failed> {
    let entered = context.enter_to_wait(request.operation)?;
    let owned = core::allocate(
        context,
        request,
        ResourceKind::Device,
        type_name,
        || context.into(),
        || memory::alloc(request.bytes),
    )?;
    Ok((entered, owned))
}

#[inline(always)]
fn request(operation: &'static str, bytes: usize, site: &'static Location<'static>) -> Request {
    Request {
        operation,
        kind: Some(ResourceKind::Device),
        bytes,
        site,
    }
}

impl<T: DeviceCopy> DeviceBuffer<T> {
    /// Allocates uninitialized memory for `len` values.
    #[inline]
    #[track_caller]
    pub(super) fn allocate<'a>(
        operation: &'static str,
        context: &'a Arc<OpenContext>,
        len: usize,
    ) -> Result<(Entered<'a>, Self)> {
        let bytes = bytes_of::<T>(operation, len)?;
        let type_name = std::any::type_name::<T>();
        let (entered, owned) = allocate(operation, context, bytes, type_name)?;
        // The exit handler waits only so long: what the caller does next must not call the driver after it.
        if process::is_exiting() {
            return Err(Error::ProcessEnding { operation });
        }
        Ok((entered, Self::new(operation, len, owned)?))
    }

    /// Allocates uninitialized memory for `len` values, from the context's pool if it has one.
    #[inline]
    #[track_caller]
    fn allocate_in_context<'a>(
        operation: &'static str,
        context: &'a Context,
        len: usize,
    ) -> Result<(Entered<'a>, Self)> {
        if !context.state().has_pool {
            return Self::allocate(operation, context.open(), len);
        }
        let stream = context.default_stream()?.stream_state();
        let buffer = Self::allocate_on(operation, PoolRef::Default, stream, len)?;
        let entered = context.state().enter_to_wait(operation)?;
        Ok((entered, buffer))
    }

    /// The buffer of a new allocation, which is freed if it is not aligned for `T`.
    #[inline]
    pub(super) fn new(operation: &'static str, len: usize, owned: OwnedResource) -> Result<Self> {
        check_alignment::<T>(operation, owned.address())?;
        Ok(Self::from_owned(len, owned))
    }

    #[inline]
    pub(super) fn from_owned(len: usize, owned: OwnedResource) -> Self {
        #[cfg(feature = "cust")]
        let start = DevicePointer::from_raw(owned.address());
        Self {
            // SAFETY: the allocation holds `len` values.
            #[cfg(feature = "cust")]
            slice: unsafe { DeviceSlice::from_raw_parts(start, len) },
            elements: PhantomData,
            len,
            owned,
        }
    }

    /// Copies `values` to a new allocation from `source`: a context, a stream or a [pool](crate::Pool); see [`Source`].
    /// Synchronous: waits for the copy also where the memory is stream-ordered, because the device may read values in
    /// page-locked memory later. (In a [`Scope`](crate::Scope), uploads do not wait.)
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// let buffer = cuguard::DeviceBuffer::from_slice(&context, &[1.5, 2.5])?;
    /// assert_eq!(buffer.to_vec()?, [1.5, 2.5]);
    /// let in_stream_order = cuguard::DeviceBuffer::from_slice(&stream, &[3.5])?;
    /// assert_eq!(in_stream_order.to_vec()?, [3.5]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] with a diagnosis, [`Error::Misaligned`] if the driver's address is not aligned for `T`,
    /// [`Error::WrongContext`] if pool and stream belong to different contexts, or any other driver error. Nothing stays
    /// allocated.
    #[track_caller]
    #[doc(alias("clone_htod", "memcpy_stod", "htod_copy", "from_slice_async"))]
    pub fn from_slice(source: &impl Source, values: &[T]) -> Result<Self> {
        Self::allocate_copy("DeviceBuffer::from_slice", source.parts().0, values)
    }

    #[track_caller]
    pub(super) fn allocate_copy(
        operation: &'static str,
        source: Parts<'_>,
        values: &[T],
    ) -> Result<Self> {
        let (entered, buffer) = match source {
            Parts::Context(context) => Self::allocate_in_context(operation, context, values.len())?,
            Parts::Ordered(pool, stream) => {
                let buffer = Self::allocate_on(operation, pool, stream, values.len())?;
                if buffer.size_in_bytes() == 0 {
                    return Ok(buffer);
                }
                (stream.state().enter_to_wait(operation)?, buffer)
            }
        };
        // SAFETY: there are equally many values, and nothing else refers to the new allocation.
        unsafe { buffer.memory().write(&entered, values.as_ptr().cast())? };
        Ok(buffer)
    }

    /// Allocates `len` values from `source` and sets every byte to zero. The source is a context, a stream or a
    /// [pool](crate::Pool); see [`Source`].
    ///
    /// Synchronous from a context without a pool. Otherwise stream-ordered: set to zero and freed on the stream, for a context
    /// with a pool on the default stream, without blocking the calling thread.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// use cuguard::{Context, DeviceBuffer, Stream};
    ///
    /// let context = Context::new(0)?;
    /// let buffer = DeviceBuffer::<u16>::zeroed(&context, 4)?;
    /// assert_eq!(buffer.to_vec()?, [0; 4]);
    ///
    /// let stream = Stream::new(&context)?;
    /// let buffer = DeviceBuffer::<u8>::zeroed(&stream, 1 << 20)?;
    /// drop(buffer); // freed in stream order
    /// stream.synchronize()?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`from_slice`](Self::from_slice), and [`Error::SizeOverflow`].
    #[track_caller]
    #[doc(alias("alloc_zeros", "zeroed_async", "cuMemAllocAsync", "cudaMallocAsync"))]
    pub fn zeroed(source: &impl Source, len: usize) -> Result<Self>
    where
        T: Zeroable,
    {
        const OPERATION: &str = "DeviceBuffer::zeroed";
        match source.parts().0 {
            Parts::Context(context) => {
                let (entered, buffer) = Self::allocate_in_context(OPERATION, context, len)?;
                // SAFETY: nothing else refers to the new allocation.
                unsafe { buffer.memory().zero(&entered)? };
                Ok(buffer)
            }
            Parts::Ordered(pool, stream) => Self::allocate_zeroed(OPERATION, pool, stream, len),
        }
    }

    /// Allocates `len` uninitialized values from `source`: a context, a stream or a [pool](crate::Pool); see [`Source`].
    ///
    /// # Safety
    ///
    /// Every value must be initialized, by a copy or a kernel, before it is read.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// // SAFETY: initialized before it is read.
    /// let mut buffer = unsafe { cuguard::DeviceBuffer::uninitialized(&context, 2)? };
    /// buffer.copy_from_slice(&[7, 8])?;
    /// assert_eq!(buffer.to_vec()?, [7, 8]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`zeroed`](Self::zeroed).
    #[inline]
    #[track_caller]
    #[doc(alias("alloc", "uninitialized_async"))]
    pub unsafe fn uninitialized(source: &impl Source, len: usize) -> Result<Self> {
        const OPERATION: &str = "DeviceBuffer::uninitialized";
        match source.parts().0 {
            Parts::Context(context) => {
                let (_entered, buffer) = Self::allocate_in_context(OPERATION, context, len)?;
                Ok(buffer)
            }
            Parts::Ordered(pool, stream) => Self::allocate_on(OPERATION, pool, stream, len),
        }
    }

    /// Names the buffer in reports.
    #[must_use = "returns the guard"]
    pub fn with_label(self, label: &str) -> Self {
        self.owned.name(label);
        self
    }

    /// The number of elements.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let buffer = cuguard::DeviceBuffer::<u16>::zeroed(&context, 5)?;
    /// assert_eq!((buffer.len(), buffer.size_in_bytes()), (5, 10));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the length is 0.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let buffer = cuguard::DeviceBuffer::<u16>::zeroed(&context, 0)?;
    /// assert!(buffer.is_empty());
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The size in bytes.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let buffer = cuguard::DeviceBuffer::<f64>::zeroed(&context, 100)?;
    /// assert_eq!(buffer.size_in_bytes(), 800);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn size_in_bytes(&self) -> usize {
        // Checked at allocation.
        self.len * size_of::<T>()
    }

    /// The owner of the memory alone.
    pub(crate) fn into_owned(self) -> OwnedResource {
        self.owned
    }

    pub(crate) fn address(&self) -> CUdeviceptr {
        self.owned.address()
    }

    pub(crate) fn state(&self) -> &Arc<ContextState> {
        self.owned.state()
    }

    /// The stream that stream-ordered memory is allocated and freed on; `None` for synchronous memory.
    pub(crate) fn home(&self) -> Option<&Arc<StreamState>> {
        self.owned.home()
    }

    /// All memory of the buffer.
    pub(crate) fn memory(&self) -> DeviceMemory<'_> {
        DeviceMemory::of(&self.owned, self.address(), self.size_in_bytes())
    }

    /// Copies `values` to the buffer, which must have the same length. Synchronous.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let mut buffer = cuguard::DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    /// assert!(buffer.copy_from_slice(&[4, 5]).is_err()); // the buffer holds three
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::LengthMismatch`], [`Error::ContextClosed`], or any other driver error.
    #[doc(alias("memcpy_htod", "copy_from", "cuMemcpyHtoD", "cudaMemcpy"))]
    pub fn copy_from_slice(&mut self, values: &[T]) -> Result<()> {
        let operation = "DeviceBuffer::copy_from_slice";
        self.as_view_mut().write(operation, "the buffer", values)
    }

    /// Copies the elements to `values`, which must have the same length. Synchronous.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let buffer = cuguard::DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    /// let mut values = [0; 3];
    /// buffer.copy_to_slice(&mut values)?;
    /// assert_eq!(values, [1, 2, 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::LengthMismatch`], [`Error::ContextClosed`], or any other driver error.
    #[doc(alias("memcpy_dtoh", "copy_to", "cuMemcpyDtoH"))]
    pub fn copy_to_slice(&self, values: &mut [T]) -> Result<()> {
        let operation = "DeviceBuffer::copy_to_slice";
        self.as_view().read_to(operation, "the buffer", values)
    }

    /// Copies the elements to a new vector. Synchronous.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// assert_eq!(cuguard::DeviceBuffer::<u8>::zeroed(&context, 2)?.to_vec()?, [0, 0]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`], [`Error::OutOfHostMemory`], or any other driver error.
    #[doc(alias("clone_dtoh", "memcpy_dtov", "as_host_vec"))]
    pub fn to_vec(&self) -> Result<Vec<T>> {
        self.as_view().read_vec("DeviceBuffer::to_vec")
    }

    /// Frees the memory and returns the driver's error, if any. A failed free is in the report, by `close` or by drop.
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`] if the context was closed first, or any other driver error.
    pub fn close(self) -> Result<()> {
        self.owned.close("DeviceBuffer::close")
    }
}
