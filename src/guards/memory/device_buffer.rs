//! A run of values in device memory.

use std::mem::{self, ManuallyDrop, MaybeUninit};
use std::panic::Location;
use std::sync::Arc;

use bytemuck::Zeroable;
use cuguard_driver::result::{copy, memory};
use cuguard_driver::sys::{CUdeviceptr, CUstream};
use cust::memory::{DeviceCopy, DevicePointer, DeviceSlice};

use super::host_limit;
use crate::core::{
    self, ContextState, Entered, OpenContext, OwnedResource, Request, StreamState, wait,
};
use crate::error::{Error, Result};
use crate::guards::Context;
use crate::recovery;
use cuguard_registry::Kind;

/// The bytes of so many `T`.
pub(crate) fn bytes_of<T>(operation: &'static str, count: usize) -> Result<usize> {
    let size = mem::size_of::<T>();
    // A slice has at most isize::MAX bytes.
    count
        .checked_mul(size)
        .filter(|bytes| isize::try_from(*bytes).is_ok())
        .ok_or(Error::SizeOverflow {
            operation,
            count,
            size,
        })
}

/// Values of type `T` in device memory, freed when this goes.
///
/// It works on any thread. No values and values without size take no memory.
///
/// It derefs to [`cust`'s `DeviceSlice`][slice], so that `cust`'s traits and its launch macro
/// go on working. A `DeviceSlice` that is copied out of the buffer does not keep it alive: that is
/// `cust`'s to answer for, and what [`Stream::scope`](crate::Stream::scope) is better at.
///
/// [slice]: https://docs.rs/cust/0.3/cust/memory/struct.DeviceSlice.html
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::{Context, DeviceBuffer};
///
/// let context = Context::new(0)?;
/// let mut buffer = DeviceBuffer::from_slice(&context, &[1, 2, 3])?.named("numbers");
/// buffer.copy_from_slice(&[4, 5, 6])?;
/// assert_eq!(buffer.to_vec()?, [4, 5, 6]);
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "what is not kept is freed at once"]
pub struct DeviceBuffer<T: DeviceCopy> {
    /// What `cust` sees. Safe code can overwrite it through `DerefMut`, so nothing here relies on
    /// it: what is freed, and how long it is, stands in the claim and in `len`.
    pub(super) slice: DeviceSlice<T>,
    len: usize,
    /// A claim on nothing where no memory is needed.
    pub(super) owned: OwnedResource,
}

/// Allocates device memory, and stays inside the gate for what the caller does next. One function for all types.
#[track_caller]
fn allocate<'a>(
    operation: &'static str,
    context: &'a Arc<OpenContext>,
    bytes: usize,
    type_name: &'static str,
) -> Result<(Entered<'a>, OwnedResource)> {
    let request = Request {
        operation,
        kind: Some(Kind::Device),
        bytes,
        site: Location::caller(),
    };
    let state: &Arc<ContextState> = context;
    recovery::satisfy(state, &request, || {
        let entered = state.enter_to_wait(operation)?;
        let owned = core::allocate(context.into(), &request, Kind::Device, type_name, || {
            memory::alloc(bytes)
        })?;
        Ok((entered, owned))
    })
}

impl<T: DeviceCopy> DeviceBuffer<T> {
    /// Uninitialized memory for `len` values.
    #[track_caller]
    fn allocate<'a>(
        operation: &'static str,
        context: &'a Context,
        len: usize,
    ) -> Result<(Entered<'a>, Self)> {
        let bytes = bytes_of::<T>(operation, len)?;
        let type_name = std::any::type_name::<T>();
        let (entered, owned) = allocate(operation, context.open(), bytes, type_name)?;
        Ok((entered, Self::assemble(len, owned)))
    }

    pub(super) fn assemble(len: usize, owned: OwnedResource) -> Self {
        let start = DevicePointer::from_raw(owned.address());
        // SAFETY: the slice is as long as the memory that was allocated for it.
        let slice = unsafe { DeviceSlice::from_raw_parts(start, len) };
        Self { slice, len, owned }
    }

    /// A copy of `values` on the device.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let buffer = cuguard::DeviceBuffer::from_slice(&context, &[1.5, 2.5])?;
    /// assert_eq!(buffer.to_vec()?, [1.5, 2.5]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// What the driver says; nothing stays allocated then.
    #[track_caller]
    pub fn from_slice(context: &Context, values: &[T]) -> Result<Self> {
        Self::copy_of("DeviceBuffer::from_slice", context, values)
    }

    #[track_caller]
    pub(super) fn copy_of(
        operation: &'static str,
        context: &Context,
        values: &[T],
    ) -> Result<Self> {
        let (entered, mut buffer) = Self::allocate(operation, context, values.len())?;
        buffer.write_within(&entered, values)?;
        drop(entered);
        Ok(buffer)
    }

    /// `len` values of which every byte is zero.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let buffer = cuguard::DeviceBuffer::<u16>::zeroed(&context, 4)?;
    /// assert_eq!(buffer.to_vec()?, [0; 4]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::SizeOverflow`], or what the driver says; nothing stays allocated then.
    #[track_caller]
    pub fn zeroed(context: &Context, len: usize) -> Result<Self>
    where
        T: Zeroable,
    {
        const OPERATION: &str = "DeviceBuffer::zeroed";
        let (entered, mut buffer) = Self::allocate(OPERATION, context, len)?;
        buffer.clear_within(&entered)?;
        drop(entered);
        Ok(buffer)
    }

    /// `len` values of whatever the memory holds.
    ///
    /// # Safety
    ///
    /// Every value must be written, by a copy or a kernel, before it is read.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// // SAFETY: written before it is read.
    /// let mut buffer = unsafe { cuguard::DeviceBuffer::uninitialized(&context, 2)? };
    /// buffer.copy_from_slice(&[7, 8])?;
    /// assert_eq!(buffer.to_vec()?, [7, 8]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`zeroed`](Self::zeroed).
    #[track_caller]
    pub unsafe fn uninitialized(context: &Context, len: usize) -> Result<Self> {
        let (_entered, buffer) = Self::allocate("DeviceBuffer::uninitialized", context, len)?;
        Ok(buffer)
    }

    /// Gives the buffer a name that reports show.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let weights = cuguard::DeviceBuffer::<f32>::zeroed(&context, 1000)?.named("weights");
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use = "the buffer is handed back"]
    pub fn named(self, label: &str) -> Self {
        self.owned.name(label);
        self
    }

    /// The number of values.
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

    /// Whether there are no values.
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
        // Did not overflow when it was allocated.
        self.len * mem::size_of::<T>()
    }

    pub(crate) fn address(&self) -> CUdeviceptr {
        self.owned.address()
    }

    pub(crate) fn state(&self) -> &Arc<ContextState> {
        self.owned.state()
    }

    pub(crate) fn home(&self) -> Option<&Arc<StreamState>> {
        self.owned.home()
    }

    fn check_len(&self, operation: &'static str, actual: usize) -> Result<()> {
        if actual == self.len {
            return Ok(());
        }
        Err(Error::LengthMismatch {
            operation,
            expected: self.len,
            actual,
        })
    }

    /// Waits until what was written is there for every stream. A synchronous copy from ordinary
    /// memory, and a fill, may return while the device still works on it, and streams that do not
    /// block would not wait for it.
    pub(super) fn settle(&self, entered: &Entered<'_>) -> Result<()> {
        match self.home() {
            Some(home) => home
                .progress()
                .track_wait(|| wait::wait_until_idle(entered, home.handle())),
            None => wait::wait_until_idle(entered, CUstream::NULL),
        }
    }

    pub(super) fn write(&mut self, operation: &'static str, values: &[T]) -> Result<()> {
        self.check_len(operation, values.len())?;
        let state = self.state().clone();
        let entered = state.enter_to_wait(operation)?;
        self.write_within(&entered, values)
    }

    /// Copies as many values as the buffer has. Synchronous.
    fn write_within(&mut self, entered: &Entered<'_>, values: &[T]) -> Result<()> {
        let (bytes, from) = (size_of_val(values), values.as_ptr().cast());
        if bytes == 0 {
            return Ok(());
        }
        match self.home() {
            None => {
                // SAFETY: both sides have this many bytes; the source is read when this returns.
                let copied = unsafe { copy::htod(self.address(), from, bytes) };
                entered.check_bytes(copied, bytes)?;
                self.settle(entered)
            }
            Some(home) => {
                self.owned.order_after_default_stream(entered)?;
                // On the home stream, in whose order the memory is valid. SAFETY: both sides have this many bytes, and
                // stay until `settle` has waited.
                let enqueued =
                    unsafe { copy::htod_async(self.address(), from, bytes, home.handle()) };
                let enqueued = entered.check_bytes(enqueued, bytes);
                self.settle(entered).and(enqueued)
            }
        }
    }

    pub(super) fn clear(&mut self, operation: &'static str) -> Result<()> {
        if self.size_in_bytes() == 0 {
            return Ok(());
        }
        let state = self.state().clone();
        let entered = state.enter(operation)?;
        self.clear_within(&entered)
    }

    fn clear_within(&mut self, entered: &Entered<'_>) -> Result<()> {
        let bytes = self.size_in_bytes();
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the memory has this many bytes; on a stream, it is valid in its order.
        let cleared = unsafe {
            match self.home() {
                None => copy::set_d8(self.address(), 0, bytes),
                Some(home) => copy::set_d8_async(self.address(), 0, bytes, home.handle()),
            }
        };
        entered.check_bytes(cleared, bytes)?;
        match self.home() {
            // Others reach a stream-ordered buffer through its stream.
            Some(_) => Ok(()),
            None => self.settle(entered),
        }
    }

    /// Copies `values` to the device. There must be as many as the buffer holds.
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
    /// [`Error::LengthMismatch`], [`Error::ContextClosed`], or what the driver says.
    pub fn copy_from_slice(&mut self, values: &[T]) -> Result<()> {
        self.write("DeviceBuffer::copy_from_slice", values)
    }

    /// Copies the values from the device. There must be room for as many as the buffer holds.
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
    /// [`Error::LengthMismatch`], [`Error::ContextClosed`], or what the driver says.
    pub fn copy_to_slice(&self, values: &mut [T]) -> Result<()> {
        const OPERATION: &str = "DeviceBuffer::copy_to_slice";
        self.check_len(OPERATION, values.len())?;
        // SAFETY: as many values as there is room for.
        unsafe { self.read(OPERATION, values.as_mut_ptr()) }
    }

    /// # Safety
    ///
    /// `to` has room for all values.
    unsafe fn read(&self, operation: &'static str, to: *mut T) -> Result<()> {
        let entered = self.state().enter_to_wait(operation)?;
        let bytes = self.size_in_bytes();
        if bytes == 0 {
            return Ok(());
        }
        match self.home() {
            None => {
                // SAFETY: both sides have this many bytes; the call returns when it is done.
                let copied = unsafe { copy::dtoh(to.cast(), self.address(), bytes) };
                entered.check_bytes(copied, bytes)
            }
            Some(home) => {
                self.owned.order_after_default_stream(&entered)?;
                // SAFETY: both sides have this many bytes, and stay until `settle` has waited.
                let enqueued =
                    unsafe { copy::dtoh_async(to.cast(), self.address(), bytes, home.handle()) };
                let enqueued = entered.check_bytes(enqueued, bytes);
                self.settle(&entered).and(enqueued)
            }
        }
    }

    /// The values, copied to the host.
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
    /// [`Error::ContextClosed`], [`Error::OutOfHostMemory`], or what the driver says.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        const OPERATION: &str = "DeviceBuffer::to_vec";
        let mut values: Vec<MaybeUninit<T>> = Vec::new();
        // A device may have more memory than the host.
        host_limit::check(OPERATION, self.size_in_bytes())?;
        if values.try_reserve_exact(self.len).is_err() {
            return Err(Error::OutOfHostMemory {
                operation: OPERATION,
                bytes: self.size_in_bytes() as u64,
                limit: None,
            });
        }
        // SAFETY: there is room for all values.
        unsafe { self.read(OPERATION, values.as_mut_ptr().cast())? };
        let mut values = ManuallyDrop::new(values);
        // SAFETY: `len` values were written; they are valid, as every safe constructor wrote valid
        // ones and `uninitialized` asks the program to. The allocation is the same.
        Ok(unsafe { Vec::from_raw_parts(values.as_mut_ptr().cast(), self.len, values.capacity()) })
    }

    /// The value of a buffer that holds one.
    pub(crate) fn only(&self, operation: &'static str) -> Result<T> {
        self.check_len(operation, 1)?;
        let mut value = MaybeUninit::uninit();
        // SAFETY: there is room for the one value.
        unsafe { self.read(operation, value.as_mut_ptr())? };
        // SAFETY: written above, or zero-sized; valid as in `to_vec`.
        Ok(unsafe { value.assume_init() })
    }

    /// Frees the memory and tells whether the driver took it. Drop does the same and files what
    /// the driver refused for the report.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// cuguard::DeviceBuffer::<u8>::zeroed(&context, 16)?.close()?;
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`] where the context went first (and freed it), or what the driver
    /// says.
    pub fn close(self) -> Result<()> {
        self.owned.close("DeviceBuffer::close")
    }
}
