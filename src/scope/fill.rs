//! Fills of device memory within a scope.

use bytemuck::{NoUninit, Pod, Zeroable};
use cuguard_driver::result::{self, copy};
use cuguard_driver::sys::{CUdeviceptr, CUstream};
use cust_core::DeviceCopy;

use super::Scope;
use super::bound::DeviceMut;
use super::uses::Used;
use crate::error::Result;

impl<'scope> Scope<'scope, '_> {
    /// Sets every byte to zero.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, Stream};
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// let mut buffer = DeviceBuffer::from_slice(&context, &[1, 2, 3])?;
    /// stream.scope(|s| s.zero(&mut s.bind_mut(&mut buffer)?))?;
    /// assert_eq!(buffer.to_vec()?, [0; 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ContextClosed`](crate::Error::ContextClosed), or any other driver error.
    #[doc(alias("memset_zeros", "cuMemsetD8Async"))]
    pub fn zero<T: DeviceCopy + Zeroable>(&self, to: &mut DeviceMut<'scope, T>) -> Result<()> {
        // `Zeroable`: the zero value is valid.
        self.fill_with("Scope::zero", to, 0)
    }

    /// Sets every byte to `byte`.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, Stream};
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// let mut buffer = DeviceBuffer::<u64>::zeroed(&context, 3)?;
    /// stream.scope(|s| s.fill_bytes(&mut s.bind_mut(&mut buffer)?, 0xff))?;
    /// assert_eq!(buffer.to_vec()?, [u64::MAX; 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ContextClosed`](crate::Error::ContextClosed), or any other driver error.
    pub fn fill_bytes<T: DeviceCopy + Pod>(
        &self,
        to: &mut DeviceMut<'scope, T>,
        byte: u8,
    ) -> Result<()> {
        // `Pod`: any bytes are a valid value.
        self.fill_with("Scope::fill_bytes", to, byte)
    }

    fn fill_with<T>(
        &self,
        operation: &'static str,
        to: &mut DeviceMut<'scope, T>,
        byte: u8,
    ) -> Result<()> {
        let used = [Used::Written(to.uses())];
        let (to, bytes) = (*to.address(), to.bytes());
        self.end.using(operation, &used, || {
            self.enqueue(operation, bytes, |stream| {
                // SAFETY: the memory has this many bytes and is borrowed until the stream is idle.
                unsafe { copy::set_d8_async(to, byte, bytes, stream) }
            })
        })
    }

    /// Sets every value to `value`. Where the driver cannot (other sizes than 1, 2 and 4 bytes), the first value is set byte by
    /// byte and copied to the rest, twice as much each time.
    ///
    /// ```
    /// # cuguard::driver::select(cuguard::driver::Choice::Sim).unwrap();
    /// # use cuguard::{Context, DeviceBuffer, Stream};
    /// # let context = Context::new(0)?;
    /// # let stream = Stream::new(&context)?;
    /// let mut buffer = DeviceBuffer::zeroed(&context, 3)?;
    /// stream.scope(|s| s.fill(&mut s.bind_mut(&mut buffer)?, 1.5_f32))?;
    /// assert_eq!(buffer.to_vec()?, [1.5; 3]);
    /// # Ok::<(), cuguard::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ContextClosed`](crate::Error::ContextClosed), or any other driver error.
    #[doc(alias = "cuMemsetD32Async")]
    pub fn fill<T: DeviceCopy + NoUninit>(
        &self,
        to: &mut DeviceMut<'scope, T>,
        value: T,
    ) -> Result<()> {
        const OPERATION: &str = "Scope::fill";
        let used = [Used::Written(to.uses())];
        let (to, count, bytes) = (*to.address(), to.len(), to.bytes());
        let enqueue = |stream| {
            let value = bytemuck::bytes_of(&value);
            // A part that was cast may begin anywhere, and the driver fills with a pattern at multiples of its size.
            let aligned = to.is_multiple_of(value.len() as u64);
            // SAFETY: the memory has `count` values of that size, and is borrowed until the stream is idle. It is aligned
            // to that size, or is filled by copies.
            unsafe {
                match *value {
                    [a] => copy::set_d8_async(to, a, count, stream),
                    [a, b] if aligned => {
                        copy::set_d16_async(to, u16::from_ne_bytes([a, b]), count, stream)
                    }
                    [a, b, c, d] if aligned => {
                        let value = u32::from_ne_bytes([a, b, c, d]);
                        copy::set_d32_async(to, value, count, stream)
                    }
                    _ => fill_by_copies(to, value, bytes, stream),
                }
            }
        };
        self.end
            .using(OPERATION, &used, || self.enqueue(OPERATION, bytes, enqueue))
    }
}

/// Sets the bytes of the first value, then copies twice as much each time from the part that is filled.
///
/// # Safety
///
/// The memory has `bytes` bytes, one value or several, and is borrowed until the stream is idle.
unsafe fn fill_by_copies(
    to: CUdeviceptr,
    value: &[u8],
    bytes: usize,
    stream: CUstream,
) -> result::Result {
    for (address, byte) in (to..).zip(value) {
        // SAFETY: within the first value.
        unsafe { copy::set_d8_async(address, *byte, 1, stream)? };
    }
    let mut filled = value.len();
    while filled < bytes {
        let count = filled.min(bytes - filled);
        // SAFETY: within the memory; the parts do not overlap, as `count` is at most `filled`.
        unsafe { copy::dtod_async(to + filled as u64, to, count, stream)? };
        filled += count;
    }
    Ok(())
}
