//! The rows and the shape of a matrix in device memory.

use bytemuck::AnyBitPattern;
use cust_core::DeviceCopy;

use super::device_memory::DeviceMemory;
use crate::error::{Error, Result};
use crate::guards::{DevicePointer, DeviceView, DeviceViewMut, PitchedBuffer};

impl<T: DeviceCopy> PitchedBuffer<T> {
    /// A view of a row, to be read.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let matrix = cuguard::memory::PitchedBuffer::from_slice(&context, 2, 2, &[1, 2, 3, 4])?;
    /// assert_eq!(matrix.row(1)?.to_vec()?, [3, 4]);
    /// let error = matrix.row(2).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "PitchedBuffer::row: there is no row 2; the matrix has 2 rows"
    /// );
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchRow`].
    pub fn row(&self, row: usize) -> Result<DeviceView<'_, T>> {
        self.row_as("PitchedBuffer::row", row)
    }

    pub(super) fn row_as(&self, operation: &'static str, row: usize) -> Result<DeviceView<'_, T>> {
        let memory = self.row_memory(operation, row)?;
        // SAFETY: the row holds this many valid values, as the constructors ensure, while the matrix is borrowed.
        Ok(unsafe { DeviceView::new(memory, self.columns) })
    }

    /// A view of a row, to be read and written.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let mut matrix = cuguard::memory::PitchedBuffer::from_slice(&context, 2, 2, &[1, 2, 3, 4])?;
    /// matrix.row_mut(0)?.copy_from_slice(&[8, 9])?;
    /// assert_eq!(matrix.to_vec()?, [8, 9, 3, 4]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::NoSuchRow`].
    pub fn row_mut(&mut self, row: usize) -> Result<DeviceViewMut<'_, T>> {
        self.row_mut_as("PitchedBuffer::row_mut", row)
    }

    pub(super) fn row_mut_as(
        &mut self,
        operation: &'static str,
        row: usize,
    ) -> Result<DeviceViewMut<'_, T>> {
        let (memory, columns) = (self.row_memory(operation, row)?, self.columns);
        // SAFETY: as in `row_as`, and the matrix is borrowed exclusively.
        Ok(unsafe { DeviceViewMut::new(memory, columns) })
    }

    fn row_memory(&self, operation: &'static str, row: usize) -> Result<DeviceMemory<'_>> {
        let rows = self.rows;
        if row >= rows {
            return Err(Error::NoSuchRow {
                operation,
                row,
                rows,
            });
        }
        Ok(self.all().part(row * self.pitch, self.width()))
    }

    /// A view of all memory with the padding, to be read: [`pitch`](Self::pitch)` / size_of::<T>()` values for each row.
    /// For kernels that get the whole matrix.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let matrix = cuguard::memory::PitchedBuffer::from_slice(&context, 2, 2, &[1_u32, 2, 3, 4])?;
    /// let (values, stride) = (matrix.as_padded_view()?.to_vec()?, matrix.pitch() / 4);
    /// assert_eq!(values.len(), 2 * stride);
    /// assert_eq!((values[0], values[stride + 1]), (1, 4));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Cast`] if the pitch is not a whole number of values.
    pub fn as_padded_view(&self) -> Result<DeviceView<'_, T>>
    where
        T: AnyBitPattern,
    {
        let len = self.padded_len("PitchedBuffer::as_padded_view")?;
        // SAFETY: the memory, padding included, is initialized, and any bytes are a valid `T`.
        Ok(unsafe { DeviceView::new(self.all(), len) })
    }

    /// The same, to be read and written.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let mut matrix = cuguard::memory::PitchedBuffer::from_slice(&context, 2, 2, &[1, 2, 3, 4])?;
    /// matrix.as_padded_view_mut()?.fill(7)?;
    /// assert_eq!(matrix.to_vec()?, [7; 4]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`as_padded_view`](Self::as_padded_view).
    pub fn as_padded_view_mut(&mut self) -> Result<DeviceViewMut<'_, T>>
    where
        T: AnyBitPattern,
    {
        let len = self.padded_len("PitchedBuffer::as_padded_view_mut")?;
        // SAFETY: as in `as_padded_view`, and this borrow is exclusive.
        Ok(unsafe { DeviceViewMut::new(self.all(), len) })
    }

    fn padded_len(&self, operation: &'static str) -> Result<usize> {
        let (size, align) = (size_of::<T>(), align_of::<T>());
        if size == 0 {
            return Ok(self.count());
        }
        if self.pitch.is_multiple_of(size) {
            return Ok(self.pitch / size * self.rows);
        }
        Err(Error::Cast {
            operation,
            bytes: self.pitch,
            address: self.address(),
            type_name: std::any::type_name::<T>(),
            size,
            align,
        })
    }

    /// The number of rows.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// assert_eq!(cuguard::memory::PitchedBuffer::<u8>::zeroed(&context, 2, 3)?.rows(), 2);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The number of columns.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// assert_eq!(cuguard::memory::PitchedBuffer::<u8>::zeroed(&context, 2, 3)?.columns(), 3);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The distance of two rows, in bytes; 0 if the matrix has no memory.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let matrix = cuguard::memory::PitchedBuffer::<u16>::zeroed(&context, 2, 3)?;
    /// assert!(matrix.pitch() >= 6);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn pitch(&self) -> usize {
        self.pitch
    }

    /// The size in bytes, with the padding.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let matrix = cuguard::memory::PitchedBuffer::<u16>::zeroed(&context, 2, 3)?;
    /// assert_eq!(matrix.size_in_bytes(), 2 * matrix.pitch());
    /// assert_eq!(context.live_bytes(), matrix.size_in_bytes() as u64);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn size_in_bytes(&self) -> usize {
        self.all().bytes()
    }

    /// The device address of the first row, for kernels.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let matrix = cuguard::memory::PitchedBuffer::<u16>::zeroed(&context, 2, 3)?;
    /// assert_eq!(matrix.as_device_ptr(), matrix.row(0)?.as_device_ptr());
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use]
    pub fn as_device_ptr(&self) -> DevicePointer<T> {
        DevicePointer::from_raw(self.address())
    }

    /// Names the buffer in reports.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let matrix = cuguard::memory::PitchedBuffer::<u16>::zeroed(&context, 2, 3)?.with_label("image");
    /// assert_eq!(context.snapshot().live[0].label.as_deref(), Some("image"));
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    #[must_use = "returns the guard"]
    pub fn with_label(self, label: &str) -> Self {
        self.owned.name(label);
        self
    }
}
