//! Device memory for a matrix, with aligned rows.

use std::marker::PhantomData;
use std::panic::Location;
use std::sync::Arc;

use bytemuck::Zeroable;
use cuguard_driver::result::{copy, memory};
use cuguard_driver::sys::{CUDA_MEMCPY2D, CUdeviceptr, memory_type};
use cust_core::DeviceCopy;

use super::device_memory::DeviceMemory;
use super::host_limit::host_vec;
use crate::core::{self, Entered, OpenContext, OwnedResource, Request, page_locked};
use crate::error::{Error, Result};
use crate::guards::{Context, bytes_of, check_alignment, check_len};
use crate::recovery;
use cuguard_registry::ResourceKind;

/// A matrix of `rows` times `columns` values of `T` in device memory, freed on drop (`cuMemAllocPitch`).
///
/// Each row begins at an aligned address, so that accesses of kernels to it coalesce: two rows are
/// [`pitch`](Self::pitch) bytes apart, which is at least the size of a row. On the host the matrix is dense, row by row.
/// The padding behind each row is zero at first. The record in the registry has the size with the padding.
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// use cuguard::memory::PitchedBuffer;
/// use cuguard::Context;
///
/// let context = Context::new(0)?;
/// let mut image = PitchedBuffer::from_slice(&context, 2, 3, &[1, 2, 3, 4, 5, 6])?;
/// assert_eq!(image.row(1)?.to_vec()?, [4, 5, 6]);
/// image.row_mut(0)?.fill(7)?;
/// assert_eq!(image.to_vec()?, [7, 7, 7, 4, 5, 6]);
/// # Ok::<(), cuguard::Error>(())
/// ```
///
/// A kernel gets the address and the pitch. In a scope, bind a [row](Self::row), or the whole matrix by its
/// [padded view](Self::as_padded_view):
///
/// ```
/// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
/// # use cuguard::memory::PitchedBuffer;
/// # use cuguard::{Context, Stream};
/// # let context = Context::new(0)?;
/// # let stream = Stream::new(&context)?;
/// let mut image = PitchedBuffer::<f32>::zeroed(&context, 480, 641)?;
/// stream.scope(|s| {
///     let stride = image.pitch() / size_of::<f32>();
///     let mut pixels = s.bind_mut(image.as_padded_view_mut()?)?;
///     assert_eq!(pixels.len(), 480 * stride);
///     // ... launch a kernel with `pixels` and `stride` ...
///     s.fill(&mut pixels, 1.5)
/// })?;
/// assert_eq!(image.to_vec()?, vec![1.5; 480 * 641]);
/// # Ok::<(), cuguard::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "dropped at once if unused"]
#[doc(alias("cuMemAllocPitch", "cudaMallocPitch"))]
pub struct PitchedBuffer<T: DeviceCopy> {
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// In bytes; a multiple of the alignment of `T`.
    pub(super) pitch: usize,
    /// Owns nothing if the values need no memory.
    pub(super) owned: OwnedResource,
    values: PhantomData<T>,
}

/// The name of the matrix in errors about lengths.
const NAME: &str = "the matrix";

impl<T: DeviceCopy> PitchedBuffer<T> {
    /// Allocates the matrix and sets every byte to zero, the padding too. The values may be invalid so.
    #[track_caller]
    fn allocate<'a>(
        operation: &'static str,
        context: &'a Arc<OpenContext>,
        rows: usize,
        columns: usize,
    ) -> Result<(Entered<'a>, Self)> {
        let overflow = Error::MatrixOverflow {
            operation,
            rows,
            columns,
            size: size_of::<T>(),
        };
        let bytes = rows
            .checked_mul(columns)
            .and_then(|count| bytes_of::<T>(operation, count).ok());
        let Some(bytes) = bytes else {
            return Err(overflow);
        };
        let width = if bytes == 0 { 0 } else { bytes / rows };
        let matrix = |pitch, owned| Self {
            rows,
            columns,
            pitch,
            owned,
            values: PhantomData,
        };
        if bytes == 0 {
            let owned = OwnedResource::nothing(context.into(), ResourceKind::Device);
            return Ok((context.enter_to_wait(operation)?, matrix(width, owned)));
        }
        // What drivers align rows to, for the limit of the context and for errors.
        const ALIGNMENT: usize = 512;
        let estimate = width.checked_next_multiple_of(ALIGNMENT);
        let estimate = estimate.and_then(|pitch| pitch.checked_mul(rows));
        let request = Request {
            operation,
            kind: Some(ResourceKind::Device),
            bytes: estimate.ok_or(overflow)?,
            site: Location::caller(),
        };
        // The largest access of a kernel that the driver aligns for.
        let element = match size_of::<T>() {
            size if size.is_multiple_of(16) => 16,
            size if size.is_multiple_of(8) => 8,
            _ => 4,
        };
        let (pitch, owned) = recovery::with_recovery(context, &request, || {
            let _entered = context.enter_to_wait(operation)?;
            let (owner, type_name) = (context.into(), std::any::type_name::<T>());
            let mut pitch = 0;
            let allocate = || {
                let (address, distance) = memory::alloc_pitch(width, rows, element)?;
                pitch = distance;
                Ok((address, distance as u64 * rows as u64))
            };
            let owned =
                core::allocate_of_driver_size(context, &request, type_name, owner, allocate)?;
            Ok((pitch, owned))
        })?;
        let buffer = matrix(pitch, owned);
        // On failure the buffer is freed. The second row, too, is aligned.
        check_alignment::<T>(operation, buffer.address())?;
        check_alignment::<T>(operation, buffer.address() + pitch as u64)?;
        let entered = context.enter_to_wait(operation)?;
        // SAFETY: nothing else refers to the new allocation.
        unsafe { buffer.all().zero(&entered)? };
        Ok((entered, buffer))
    }

    /// Copies a dense matrix, row by row, to a new allocation. Synchronous.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let matrix = cuguard::memory::PitchedBuffer::from_slice(&context, 2, 2, &[1, 2, 3, 4])?;
    /// assert_eq!((matrix.rows(), matrix.columns()), (2, 2));
    /// let error = cuguard::memory::PitchedBuffer::from_slice(&context, 2, 3, &[1, 2, 3, 4]).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "PitchedBuffer::from_slice: the source has 4 elements, the matrix 6"
    /// );
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::LengthMismatch`] unless there are `rows` times `columns` values; [`Error::OutOfMemory`] with a diagnosis,
    /// [`Error::Misaligned`] if the rows are not aligned for `T`, or any other driver error. Nothing stays allocated.
    #[track_caller]
    pub fn from_slice(
        context: &Context,
        rows: usize,
        columns: usize,
        values: &[T],
    ) -> Result<Self> {
        const OPERATION: &str = "PitchedBuffer::from_slice";
        let expected = rows.saturating_mul(columns);
        check_len(OPERATION, ("the source", values.len()), (NAME, expected))?;
        let (entered, buffer) = Self::allocate(OPERATION, context.open(), rows, columns)?;
        // SAFETY: there are equally many values, and nothing else refers to the new allocation.
        unsafe { buffer.write(&entered, values.as_ptr())? };
        Ok(buffer)
    }

    /// Allocates a matrix and sets every byte to zero.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let matrix = cuguard::memory::PitchedBuffer::<u16>::zeroed(&context, 2, 3)?;
    /// assert_eq!(matrix.to_vec()?, [0; 6]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::MatrixOverflow`], [`Error::OutOfMemory`] with a diagnosis, [`Error::Misaligned`] if the rows are not aligned
    /// for `T`, or any other driver error. Nothing stays allocated.
    #[track_caller]
    pub fn zeroed(context: &Context, rows: usize, columns: usize) -> Result<Self>
    where
        T: Zeroable,
    {
        let operation = "PitchedBuffer::zeroed";
        let (_entered, buffer) = Self::allocate(operation, context.open(), rows, columns)?;
        Ok(buffer)
    }

    pub(super) fn address(&self) -> CUdeviceptr {
        self.owned.address()
    }

    /// The number of values.
    pub(super) fn count(&self) -> usize {
        self.rows * self.columns
    }

    /// The size of a row without padding, in bytes.
    pub(super) fn width(&self) -> usize {
        // Without rows, the number of columns may be any.
        match self.rows {
            0 => 0,
            _ => self.columns * size_of::<T>(),
        }
    }

    /// All memory, with the padding.
    pub(super) fn all(&self) -> DeviceMemory<'_> {
        DeviceMemory::of(&self.owned, self.address(), self.pitch * self.rows)
    }

    /// Copies all rows from or to memory of this context or of the host, and waits. `copy` has the other side. The
    /// context is current.
    ///
    /// # Safety
    ///
    /// As [`copy::copy_2d`].
    unsafe fn copy_rows(&self, entered: &Entered<'_>, copy: CUDA_MEMCPY2D) -> Result<()> {
        let bytes = self.count() * size_of::<T>();
        if bytes == 0 {
            return Ok(());
        }
        let copy = CUDA_MEMCPY2D {
            WidthInBytes: self.width(),
            Height: self.rows,
            ..copy
        };
        // Null where the other side is on the device.
        let host = match copy.srcMemoryType {
            memory_type::HOST => copy.srcHost,
            _ => copy.dstHost.cast_const(),
        };
        page_locked::with_owner(entered.operation(), self.owned.state(), host, |_| {
            // SAFETY: as the caller ensures; both sides are borrowed until the wait ends.
            let copied = unsafe { copy::copy_2d(&copy) };
            self.all().finish(entered, copied)
        })
    }

    /// # Safety
    ///
    /// `from` has as many values as the matrix, which nothing else uses meanwhile.
    unsafe fn write(&self, entered: &Entered<'_>, from: *const T) -> Result<()> {
        let copy = CUDA_MEMCPY2D {
            srcMemoryType: memory_type::HOST,
            srcHost: from.cast(),
            srcPitch: self.width(),
            dstMemoryType: memory_type::DEVICE,
            dstDevice: self.address(),
            dstPitch: self.pitch,
            ..CUDA_MEMCPY2D::default()
        };
        // SAFETY: as the caller ensures.
        unsafe { self.copy_rows(entered, copy) }
    }

    /// # Safety
    ///
    /// `to` has room for as many values as the matrix has.
    unsafe fn read(&self, operation: &'static str, to: *mut T) -> Result<()> {
        let entered = self.owned.state().enter_to_wait(operation)?;
        let copy = CUDA_MEMCPY2D {
            srcMemoryType: memory_type::DEVICE,
            srcDevice: self.address(),
            srcPitch: self.pitch,
            dstMemoryType: memory_type::HOST,
            dstHost: to.cast(),
            dstPitch: self.width(),
            ..CUDA_MEMCPY2D::default()
        };
        // SAFETY: as the caller ensures, and what writes the matrix borrows it exclusively.
        unsafe { self.copy_rows(&entered, copy) }
    }

    /// Copies a dense matrix, row by row, to the device. Synchronous.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let mut matrix = cuguard::memory::PitchedBuffer::zeroed(&context, 2, 2)?;
    /// matrix.copy_from_slice(&[1, 2, 3, 4])?;
    /// assert_eq!(matrix.to_vec()?, [1, 2, 3, 4]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::LengthMismatch`], [`Error::ContextClosed`], or any other driver error.
    pub fn copy_from_slice(&mut self, values: &[T]) -> Result<()> {
        const OPERATION: &str = "PitchedBuffer::copy_from_slice";
        let matrix = (NAME, self.count());
        check_len(OPERATION, ("the source", values.len()), matrix)?;
        let entered = self.owned.state().enter_to_wait(OPERATION)?;
        // SAFETY: there are equally many values, and this borrow is exclusive.
        unsafe { self.write(&entered, values.as_ptr()) }
    }

    /// Copies the matrix, row by row and without padding, to `values`. Synchronous.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let matrix = cuguard::memory::PitchedBuffer::from_slice(&context, 2, 2, &[1, 2, 3, 4])?;
    /// let mut values = [0; 4];
    /// matrix.copy_to_slice(&mut values)?;
    /// assert_eq!(values, [1, 2, 3, 4]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::LengthMismatch`], [`Error::ContextClosed`], or any other driver error.
    pub fn copy_to_slice(&self, values: &mut [T]) -> Result<()> {
        const OPERATION: &str = "PitchedBuffer::copy_to_slice";
        let matrix = (NAME, self.count());
        check_len(OPERATION, ("the destination", values.len()), matrix)?;
        // SAFETY: `values` has room for as many values.
        unsafe { self.read(OPERATION, values.as_mut_ptr()) }
    }

    /// Copies the matrix, row by row and without padding, to a new vector. Synchronous.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let matrix = cuguard::memory::PitchedBuffer::from_slice(&context, 1, 3, &[1, 2, 3])?;
    /// assert_eq!(matrix.to_vec()?, [1, 2, 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`], [`Error::OutOfHostMemory`], or any other driver error.
    pub fn to_vec(&self) -> Result<Vec<T>> {
        const OPERATION: &str = "PitchedBuffer::to_vec";
        let count = self.count();
        let mut values = host_vec(OPERATION, count, count * size_of::<T>())?;
        // SAFETY: there is room for all values.
        unsafe { self.read(OPERATION, values.as_mut_ptr())? };
        // SAFETY: all values were copied, and they are valid: the constructors initialize the matrix.
        unsafe { values.set_len(count) };
        Ok(values)
    }

    /// Copies a matrix of the same shape: within a context, from another context, or from another device. Synchronous.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// # use cuguard::memory::PitchedBuffer;
    /// let from = PitchedBuffer::from_slice(&context, 2, 2, &[1, 2, 3, 4])?;
    /// let mut to = PitchedBuffer::zeroed(&context, 2, 2)?;
    /// to.copy_from(&from)?;
    /// assert_eq!(to.to_vec()?, [1, 2, 3, 4]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::LengthMismatch`] if the number of rows or of columns differs, [`Error::ContextClosed`], or any other
    /// driver error.
    pub fn copy_from(&mut self, source: &Self) -> Result<()> {
        self.copy_matrix("PitchedBuffer::copy_from", source)
    }

    fn copy_matrix(&mut self, operation: &'static str, source: &Self) -> Result<()> {
        for (unit, actual, expected) in [
            ("row", source.rows, self.rows),
            ("column", source.columns, self.columns),
        ] {
            if actual != expected {
                return Err(Error::LengthMismatch {
                    operation,
                    unit,
                    argument: "the source",
                    actual,
                    resource: NAME,
                    expected,
                });
            }
        }
        if self.width() == 0 {
            // Any number of rows without a byte. The copy of nothing still fails if a context is closed.
            // SAFETY: both are empty.
            return unsafe { self.all().copy_from(operation, &source.all()) };
        }
        if !Arc::ptr_eq(self.owned.state(), source.owned.state()) {
            for row in 0..self.rows {
                let from = source.row_as(operation, row)?;
                let mut to = self.row_mut_as(operation, row)?;
                to.copy_view(operation, "the row", from)?;
            }
            return Ok(());
        }
        let entered = self.owned.state().enter_to_wait(operation)?;
        let copy = CUDA_MEMCPY2D {
            srcMemoryType: memory_type::DEVICE,
            srcDevice: source.address(),
            srcPitch: source.pitch,
            dstMemoryType: memory_type::DEVICE,
            dstDevice: self.address(),
            dstPitch: self.pitch,
            ..CUDA_MEMCPY2D::default()
        };
        // SAFETY: both have this shape. They do not overlap, as this borrow is exclusive.
        unsafe { self.copy_rows(&entered, copy) }
    }

    /// Copies the matrix to a new allocation. Synchronous.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let matrix = cuguard::memory::PitchedBuffer::from_slice(&context, 2, 2, &[1, 2, 3, 4])?;
    /// assert_eq!(matrix.try_clone()?.to_vec()?, [1, 2, 3, 4]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`DeviceBuffer::try_clone`](crate::DeviceBuffer::try_clone).
    #[track_caller]
    pub fn try_clone(&self) -> Result<Self> {
        const OPERATION: &str = "PitchedBuffer::try_clone";
        let core::Owner::Context(context) = self.owned.owner() else {
            unreachable!("the owner of synchronous memory");
        };
        let (entered, mut clone) = Self::allocate(OPERATION, context, self.rows, self.columns)?;
        drop(entered);
        clone.copy_matrix(OPERATION, self)?;
        Ok(clone)
    }

    /// Sets every byte of the matrix to zero, but not the padding. Synchronous.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let mut matrix = cuguard::memory::PitchedBuffer::from_slice(&context, 1, 3, &[1, 2, 3])?;
    /// matrix.zero()?;
    /// assert_eq!(matrix.to_vec()?, [0, 0, 0]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`], or any other driver error.
    pub fn zero(&mut self) -> Result<()>
    where
        T: Zeroable,
    {
        let entered = self.owned.state().enter_to_wait("PitchedBuffer::zero")?;
        let (width, bytes) = (self.width(), self.count() * size_of::<T>());
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: the memory has these rows, and this borrow is exclusive. `Zeroable`: the zero value is valid.
        let filled = unsafe { copy::set_2d_d8(self.address(), self.pitch, 0, width, self.rows) };
        self.all().finish(&entered, filled)
    }

    /// Frees the memory and returns the driver's error, if any. A failed free is in the report, by `close` or by drop.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// cuguard::memory::PitchedBuffer::<u16>::zeroed(&context, 2, 3)?.close()?;
    /// assert_eq!(context.live_bytes(), 0);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ContextClosed`] if the context was closed first, or any other driver error.
    pub fn close(self) -> Result<()> {
        self.owned.close("PitchedBuffer::close")
    }
}
