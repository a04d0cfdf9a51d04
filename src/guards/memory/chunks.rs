//! Views of equal parts, one after another.

use cust_core::DeviceCopy;

use crate::error::{Error, Result};
use crate::guards::{DeviceBuffer, DeviceView, DeviceViewMut};

fn check(operation: &'static str, size: usize) -> Result<()> {
    match size {
        0 => Err(Error::ZeroSize {
            operation,
            argument: "the number of elements of a chunk",
        }),
        _ => Ok(()),
    }
}

fn parts<'a, T>(view: DeviceView<'a, T>, size: usize) -> impl Iterator<Item = DeviceView<'a, T>> {
    let mut rest = view;
    std::iter::from_fn(move || {
        let end = rest.len().min(size);
        // In range, so neither fails.
        let (front, back) = rest.split_at(end).ok().filter(|_| end != 0)?;
        rest = back;
        Some(front)
    })
}

fn parts_mut<'a, T>(
    view: DeviceViewMut<'a, T>,
    size: usize,
) -> impl Iterator<Item = DeviceViewMut<'a, T>> {
    let mut rest = Some(view);
    std::iter::from_fn(move || {
        let view = rest.take().filter(|view| !view.is_empty())?;
        let end = view.len().min(size);
        // In range, so it does not fail.
        let (front, back) = view.into_split_at(end).ok()?;
        rest = Some(back);
        Some(front)
    })
}

impl<'a, T> DeviceView<'a, T> {
    /// Parts of `size` elements each, one after another; the last one may have fewer, as for slices.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let buffer = cuguard::DeviceBuffer::from_slice(&context, &[1, 2, 3, 4, 5])?;
    /// let lengths: Vec<_> = buffer.as_view().chunks(2)?.map(|part| part.len()).collect();
    /// assert_eq!(lengths, [2, 2, 1]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ZeroSize`].
    pub fn chunks(self, size: usize) -> Result<impl Iterator<Item = DeviceView<'a, T>>> {
        check("DeviceView::chunks", size)?;
        Ok(parts(self, size))
    }
}

impl<'a, T> DeviceViewMut<'a, T> {
    /// Exclusive parts of `size` elements each, one after another; the last one may have fewer, as for slices.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let mut buffer = cuguard::DeviceBuffer::<u8>::zeroed(&context, 5)?;
    /// for (mut part, value) in buffer.as_view_mut().into_chunks(2)?.zip(1..) {
    ///     part.fill(value)?;
    /// }
    /// assert_eq!(buffer.to_vec()?, [1, 1, 2, 2, 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ZeroSize`].
    pub fn into_chunks(self, size: usize) -> Result<impl Iterator<Item = DeviceViewMut<'a, T>>> {
        check("DeviceViewMut::into_chunks", size)?;
        Ok(parts_mut(self, size))
    }
}

impl<T: DeviceCopy> DeviceBuffer<T> {
    /// Views of `size` elements each, one after another; the last one may have fewer, as for slices.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let buffer = cuguard::DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    /// let sums: cuguard::Result<Vec<i32>> = buffer.chunks(2)?.map(|part| Ok(part.to_vec()?.iter().sum())).collect();
    /// assert_eq!(sums?, [3, 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ZeroSize`].
    pub fn chunks(&self, size: usize) -> Result<impl Iterator<Item = DeviceView<'_, T>>> {
        check("DeviceBuffer::chunks", size)?;
        Ok(parts(self.as_view(), size))
    }

    /// Exclusive views of `size` elements each, one after another; the last one may have fewer, as for slices.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # let context = cuguard::Context::new(0)?;
    /// let mut buffer = cuguard::DeviceBuffer::<u8>::zeroed(&context, 3)?;
    /// for mut part in buffer.chunks_mut(2)? {
    ///     part.fill(7)?;
    /// }
    /// assert_eq!(buffer.to_vec()?, [7; 3]);
    /// let error = buffer.chunks_mut(0).map(drop).unwrap_err();
    /// assert_eq!(error.to_string(), "DeviceBuffer::chunks_mut: the number of elements of a chunk is 0; it must be at least 1");
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::ZeroSize`].
    pub fn chunks_mut(
        &mut self,
        size: usize,
    ) -> Result<impl Iterator<Item = DeviceViewMut<'_, T>>> {
        check("DeviceBuffer::chunks_mut", size)?;
        Ok(parts_mut(self.as_view_mut(), size))
    }
}
