//! Bindings: memory that the work of a [`Scope`](crate::Scope) may use until the scope ends.
//!
//! Each of the four types stands for a borrow that outlives the scope, and gives no access to the contents. They are
//! invariant in the scope's lifetime, so the operations of one scope reject the bindings of another, whose stream is not
//! ordered with the first, and no binding leaves the closure.

use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::ops::{Deref, RangeBounds};
use std::ptr::NonNull;

use cuguard_driver::sys::CUdeviceptr;
use cust_core::DeviceCopy;

use super::uses::Uses;
#[cfg(doc)]
use crate::error::Error;
use crate::error::Result;
use crate::guards::{DevicePointer, check_range};

/// Ties a type to one scope: the function pointer makes it invariant in the lifetime and in `T`; the slice gives it the
/// `Send` and `Sync` of a borrow, which a function pointer alone would not have.
pub(super) type Brand<'scope, T> = PhantomData<(fn(&'scope [T]) -> &'scope [T], &'scope [T])>;

/// Device memory that the work of a scope reads; see [`Scope::bind`](crate::Scope::bind).
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// # use cuguard::{Context, DeviceBuffer, Stream};
/// # let context = Context::new(0)?;
/// # let stream = Stream::new(&context)?;
/// use cuguard::{Result, Scope};
/// use cuguard::scope::{DeviceMut, DeviceRef};
///
/// // A function that enqueues work:
/// fn twice<'s>(
///     s: &Scope<'s, '_>,
///     to: DeviceMut<'s, u32>,
///     from: &DeviceRef<'s, u32>,
/// ) -> Result<()> {
///     let (mut front, mut back) = to.split_at(from.len())?;
///     s.copy(&mut front, from)?;
///     s.copy(&mut back, from)
/// }
///
/// let from = DeviceBuffer::from_slice(&context, &[1, 2])?;
/// let mut to = DeviceBuffer::zeroed(&context, 4)?;
/// stream.scope(|s| twice(s, s.bind_mut(&mut to)?, &s.bind(&from)?))?;
/// assert_eq!(to.to_vec()?, [1, 2, 1, 2]);
/// # Ok::<(), cuguard::Error>(())
/// ```
pub struct DeviceRef<'scope, T> {
    /// The first field: launches pass a pointer to it as the kernel's parameter.
    address: CUdeviceptr,
    len: usize,
    uses: Uses,
    brand: Brand<'scope, T>,
}

/// Device memory that the work of a scope reads and writes; see [`Scope::bind_mut`](crate::Scope::bind_mut). Dereferences
/// to [`DeviceRef`].
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// # let context = cuguard::Context::new(0)?;
/// # let stream = cuguard::Stream::new(&context)?;
/// let mut buffer = cuguard::DeviceBuffer::from_slice(&context, &[1, 2])?;
/// let mut seen = [0; 2];
/// stream.scope(|s| {
///     let mut data: cuguard::scope::DeviceMut<'_, i32> = s.bind_mut(&mut buffer)?;
///     s.fill(&mut data, 7)?;
///     s.download(&mut s.bind_host_mut(&mut seen), &data)
/// })?;
/// assert_eq!(seen, [7, 7]);
/// # Ok::<(), cuguard::Error>(())
/// ```
pub struct DeviceMut<'scope, T> {
    inner: DeviceRef<'scope, T>,
}

/// Host memory that the work of a scope reads; see [`Scope::bind_host`](crate::Scope::bind_host).
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// # let context = cuguard::Context::new(0)?;
/// # let stream = cuguard::Stream::new(&context)?;
/// let mut buffer = cuguard::DeviceBuffer::zeroed(&context, 2)?;
/// let values = [1, 2];
/// stream.scope(|s| {
///     let values: cuguard::scope::HostRef<'_, i32> = s.bind_host(&values);
///     s.upload(&mut s.bind_mut(&mut buffer)?, &values)
/// })?;
/// assert_eq!(buffer.to_vec()?, values);
/// # Ok::<(), cuguard::Error>(())
/// ```
pub struct HostRef<'scope, T> {
    values: NonNull<[T]>,
    uses: Uses,
    brand: Brand<'scope, T>,
}

/// Host memory that the work of a scope reads and writes; see [`Scope::bind_host_mut`](crate::Scope::bind_host_mut).
/// Dereferences to [`HostRef`].
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// # let context = cuguard::Context::new(0)?;
/// # let stream = cuguard::Stream::new(&context)?;
/// let buffer = cuguard::DeviceBuffer::from_slice(&context, &[1, 2])?;
/// let mut values = [0; 2];
/// stream.scope(|s| {
///     let mut values: cuguard::scope::HostMut<'_, i32> = s.bind_host_mut(&mut values);
///     s.download(&mut values, &s.bind(&buffer)?)
/// })?;
/// assert_eq!(values, [1, 2]);
/// # Ok::<(), cuguard::Error>(())
/// ```
pub struct HostMut<'scope, T> {
    inner: HostRef<'scope, T>,
}

// SAFETY: stands for a `&mut [T]`. (`Sync` comes from `DeviceRef`, which has the bounds of a `&[T]`.)
unsafe impl<T: Send> Send for DeviceMut<'_, T> {}
// SAFETY: stands for a `&[T]`.
unsafe impl<T: Sync> Send for HostRef<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for HostRef<'_, T> {}
// SAFETY: stands for a `&mut [T]`. (`Sync` comes from `HostRef`.)
unsafe impl<T: Send> Send for HostMut<'_, T> {}

impl<'scope, T> DeviceRef<'scope, T> {
    /// The caller has borrowed that memory for as long as the scope lasts.
    pub(crate) fn new(address: CUdeviceptr, len: usize) -> Self {
        Self {
            address,
            len,
            uses: Uses::default(),
            brand: PhantomData,
        }
    }

    pub(super) fn uses(&self) -> &Uses {
        &self.uses
    }

    pub(crate) fn address(&self) -> &CUdeviceptr {
        &self.address
    }

    /// The size in bytes, which did not overflow when the memory was allocated.
    pub(crate) fn bytes(&self) -> usize {
        self.len * mem::size_of::<T>()
    }

    /// The number of values.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// let buffer = cuguard::DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    /// assert_eq!(stream.scope(|s| Ok(s.bind(&buffer)?.len()))?, 3);
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
    /// # let stream = cuguard::Stream::new(&context)?;
    /// let buffer = cuguard::DeviceBuffer::<u8>::zeroed(&context, 0)?;
    /// assert!(stream.scope(|s| Ok(s.bind(&buffer)?.is_empty()))?);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device address.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// let buffer = cuguard::DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    /// let address = stream.scope(|s| Ok(s.bind(&buffer)?.as_device_ptr()))?;
    /// assert_eq!(address.as_raw(), buffer.into_raw());
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn as_device_ptr(&self) -> DevicePointer<T>
    where
        T: DeviceCopy,
    {
        DevicePointer::from_raw(self.address)
    }

    /// A part of the memory. Bind the memory again to use the whole too.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, Stream};
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// let buffer = DeviceBuffer::from_slice(&context, &[1, 2, 3, 4])?;
    /// let mut middle = [0; 2];
    /// stream.scope(|s| {
    ///     let part = s.bind(&buffer)?.slice(1..3)?;
    ///     s.download(&mut s.bind_host_mut(&mut middle), &part)
    /// })?;
    /// assert_eq!(middle, [2, 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::RangeOutOfBounds`].
    pub fn slice(self, range: impl RangeBounds<usize>) -> Result<Self> {
        self.part("DeviceRef::slice", range)
    }

    fn part(&self, operation: &'static str, range: impl RangeBounds<usize>) -> Result<Self> {
        let part = check_range(operation, range, "the memory", self.len)?;
        // Within the allocation, so this does not overflow.
        let address = self.address + (part.start * mem::size_of::<T>()) as u64;
        Ok(Self {
            uses: self.uses.clone(),
            ..Self::new(address, part.len())
        })
    }

    fn parts(&self, operation: &'static str, mid: usize) -> Result<(Self, Self)> {
        Ok((self.part(operation, ..mid)?, self.part(operation, mid..)?))
    }

    /// The first `mid` values, and the rest.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// let buffer = cuguard::DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    /// let lengths = stream.scope(|s| {
    ///     let (front, back) = s.bind(&buffer)?.split_at(1)?;
    ///     Ok((front.len(), back.len()))
    /// })?;
    /// assert_eq!(lengths, (1, 2));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::RangeOutOfBounds`] if there are fewer.
    pub fn split_at(self, mid: usize) -> Result<(Self, Self)> {
        self.parts("DeviceRef::split_at", mid)
    }
}

impl<'scope, T> DeviceMut<'scope, T> {
    /// The caller has borrowed that memory exclusively for as long as the scope lasts.
    pub(crate) fn new(address: CUdeviceptr, len: usize) -> Self {
        let inner = DeviceRef::new(address, len);
        Self { inner }
    }

    /// A part of the memory; [`split_at`](Self::split_at) keeps both parts.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// let mut buffer = cuguard::DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    /// stream.scope(|s| s.zero(&mut s.bind_mut(&mut buffer)?.slice(1..)?))?;
    /// assert_eq!(buffer.to_vec()?, [1, 0, 0]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::RangeOutOfBounds`].
    pub fn slice(self, range: impl RangeBounds<usize>) -> Result<Self> {
        let inner = self.inner.part("DeviceMut::slice", range)?;
        Ok(Self { inner })
    }

    /// The first `mid` values, and the rest.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, Stream};
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// let mut buffer = DeviceBuffer::from_slice(&context, &[1, 2, 3, 4])?;
    /// stream.scope(|s| {
    ///     let (mut front, back) = s.bind_mut(&mut buffer)?.split_at(2)?;
    ///     s.copy(&mut front, &back)
    /// })?;
    /// assert_eq!(buffer.to_vec()?, [3, 4, 3, 4]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::RangeOutOfBounds`] if there are fewer.
    pub fn split_at(self, mid: usize) -> Result<(Self, Self)> {
        let (front, back) = self.inner.parts("DeviceMut::split_at", mid)?;
        Ok((Self { inner: front }, Self { inner: back }))
    }
}

impl<'scope, T> Deref for DeviceMut<'scope, T> {
    type Target = DeviceRef<'scope, T>;

    fn deref(&self) -> &DeviceRef<'scope, T> {
        &self.inner
    }
}

// For sources, which are read whether they are bound shared or exclusively. (`&s.zeroed(3)?` is not coerced by `Deref`.)
impl<'scope, T> AsRef<DeviceRef<'scope, T>> for DeviceRef<'scope, T> {
    fn as_ref(&self) -> &DeviceRef<'scope, T> {
        self
    }
}

impl<'scope, T> AsRef<DeviceRef<'scope, T>> for DeviceMut<'scope, T> {
    fn as_ref(&self) -> &DeviceRef<'scope, T> {
        &self.inner
    }
}

impl<'scope, T> HostRef<'scope, T> {
    /// The caller has borrowed the values for longer than the scope lasts.
    pub(crate) fn new(values: &'scope [T]) -> Self {
        Self {
            values: values.into(),
            uses: Uses::default(),
            brand: PhantomData,
        }
    }

    pub(super) fn uses(&self) -> &Uses {
        &self.uses
    }

    pub(crate) fn as_ptr(&self) -> *const T {
        self.values.as_ptr().cast()
    }

    pub(crate) fn as_slice_ptr(&self) -> *const [T] {
        self.values.as_ptr()
    }

    /// The number of values.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// assert_eq!(stream.scope(|s| Ok(s.bind_host(&[1, 2, 3]).len()))?, 3);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether there are no values.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # let stream = cuguard::Stream::new(&context)?;
    /// assert!(stream.scope(|s| Ok(s.bind_host::<u8>(&[]).is_empty()))?);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }
}

impl<'scope, T> HostMut<'scope, T> {
    pub(crate) fn new(values: &'scope mut [T]) -> Self {
        let inner = HostRef {
            values: values.into(),
            uses: Uses::default(),
            brand: PhantomData,
        };
        Self { inner }
    }

    pub(crate) fn as_mut_ptr(&mut self) -> *mut T {
        self.inner.values.as_ptr().cast()
    }
}

impl<'scope, T> Deref for HostMut<'scope, T> {
    type Target = HostRef<'scope, T>;

    fn deref(&self) -> &HostRef<'scope, T> {
        &self.inner
    }
}

macro_rules! debug {
    ($($name:ident)*) => {$(
        impl<T> fmt::Debug for $name<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({} x {})"), self.len(), std::any::type_name::<T>())
            }
        }
    )*};
}

debug!(DeviceRef DeviceMut HostRef HostMut);
