//! Fills of device memory within a scope.

use std::mem;

use bytemuck::{NoUninit, Pod, Zeroable};
use cuguard_driver::result::{self, copy};
use cuguard_driver::sys::{CUdeviceptr, CUstream};
use cust::memory::DeviceCopy;

use super::Scope;
use super::bound::DeviceMut;
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
        let (to, bytes) = (*to.address(), to.bytes());
        self.enqueue(operation, bytes, |stream| {
            // SAFETY: the memory has this many bytes and is borrowed until the stream is idle.
            unsafe { copy::set_d8_async(to, byte, bytes, stream) }
        })
    }

    /// Sets every value to `value`. Values of other sizes than 1, 2 and 4 bytes do not compile.
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
    pub fn fill<T: DeviceCopy + NoUninit>(
        &self,
        to: &mut DeviceMut<'scope, T>,
        value: T,
    ) -> Result<()> {
        const {
            assert!(
                matches!(mem::size_of::<T>(), 1 | 2 | 4),
                "a value of 1, 2 or 4 bytes"
            );
        }
        let (to, count, bytes) = (*to.address(), to.len(), to.bytes());
        self.enqueue("Scope::fill", bytes, |stream| {
            let value = bytemuck::bytes_of(&value);
            // SAFETY: the memory has `count` values of that size, at least one, and is borrowed until the stream is idle.
            unsafe { set(to, value, count, stream) }
        })
    }
}

/// Fills memory with `count` values of 1, 2 or 4 bytes. The driver requires addresses that are a multiple of the size:
/// bytes that were cast to arrays, and those of a [`RegisteredVec`](crate::RegisteredVec), may have others.
///
/// # Safety
///
/// There are as many values, at least one, until the stream is idle, and no unordered work uses them.
unsafe fn set(to: CUdeviceptr, value: &[u8], count: usize, stream: CUstream) -> result::Result {
    let size = value.len();
    let before = to as usize % size;
    if before == 0 {
        // SAFETY: aligned; the rest is as the caller ensures.
        return unsafe { set_aligned(to, value, count, stream) };
    }
    // Aligned values lie across the ends of these. Of the first and the last value a part is left.
    let head = size - before;
    let last = (count - 1) * size;
    for (at, byte) in value.iter().enumerate() {
        let offset = if at < head { at } else { last + at };
        // SAFETY: within the memory; the rest is as the caller ensures.
        unsafe { copy::set_d8_async(to + offset as u64, *byte, 1, stream)? };
    }
    if count == 1 {
        return Ok(());
    }
    let mut across = [0; 4];
    let across = &mut across[..size];
    across.copy_from_slice(value);
    across.rotate_left(head);
    // SAFETY: aligned, and within the memory; the rest is as the caller ensures.
    unsafe { set_aligned(to + head as u64, across, count - 1, stream) }
}

/// # Safety
///
/// As [`set`]; the address is a multiple of the size of a value.
unsafe fn set_aligned(
    to: CUdeviceptr,
    value: &[u8],
    count: usize,
    stream: CUstream,
) -> result::Result {
    // SAFETY: as the caller ensures.
    unsafe {
        match *value {
            [a] => copy::set_d8_async(to, a, count, stream),
            [a, b] => copy::set_d16_async(to, u16::from_ne_bytes([a, b]), count, stream),
            [a, b, c, d] => {
                let value = u32::from_ne_bytes([a, b, c, d]);
                copy::set_d32_async(to, value, count, stream)
            }
            _ => unreachable!("a value of 1, 2 or 4 bytes"),
        }
    }
}
