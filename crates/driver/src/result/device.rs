//! Devices: how many there are, what they are, and their primary contexts and memory pools.
//!
//! A device is named by its ordinal, a number that the driver checks; so nearly all of these functions are
//! safe.

use std::ffi::CStr;

use cuguard_sys::{CUcontext, CUdevice, CUmemoryPool};

use super::{Result, call};

/// Returns how many devices there are.
///
/// # Errors
///
/// `CUDA_ERROR_NOT_INITIALIZED` before [`init`](super::init), or any other driver error.
#[inline]
pub fn count() -> Result<u32> {
    let mut count = 0;
    // SAFETY: the variable can be written to.
    unsafe { call!(cuDeviceGetCount(&mut count))? };
    Ok(count.max(0) as u32)
}

/// The text that a driver wrote to `buffer`.
fn text(buffer: &[u8]) -> &CStr {
    CStr::from_bytes_until_nul(buffer).unwrap_or_default()
}

/// The length of `buffer` as the driver takes it.
fn length(buffer: &[u8]) -> i32 {
    i32::try_from(buffer.len()).unwrap_or(i32::MAX)
}

/// Writes the device's name to `buffer` and returns it, cut where the buffer is shorter.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_DEVICE`, or any other driver error.
#[inline]
pub fn name(device: CUdevice, buffer: &mut [u8]) -> Result<&CStr> {
    // SAFETY: the buffer has at least as many bytes as stated.
    unsafe {
        call!(cuDeviceGetName(
            buffer.as_mut_ptr().cast(),
            length(buffer),
            device
        ))?
    };
    Ok(text(buffer))
}

/// Writes the device's PCI address, such as `0000:65:00.0`, to `buffer` and returns it.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_DEVICE`, `CUDA_ERROR_INVALID_VALUE` if the buffer has fewer than 13 bytes, or any
/// other driver error.
#[inline]
pub fn pci_bus_id(device: CUdevice, buffer: &mut [u8]) -> Result<&CStr> {
    // SAFETY: the buffer has at least as many bytes as stated.
    unsafe {
        call!(cuDeviceGetPCIBusId(
            buffer.as_mut_ptr().cast(),
            length(buffer),
            device
        ))?
    };
    Ok(text(buffer))
}

/// Returns the device's memory in bytes.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_DEVICE`, or any other driver error.
#[inline]
pub fn total_mem(device: CUdevice) -> Result<usize> {
    let mut bytes = 0;
    // SAFETY: the variable can be written to; the driver checks the device.
    unsafe { call!(cuDeviceTotalMem_v2(&mut bytes, device))? };
    Ok(bytes)
}

/// Returns an attribute of the device, by a constant of
/// [`device_attribute`](cuguard_sys::device_attribute).
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_DEVICE`, `CUDA_ERROR_INVALID_VALUE`, or any other driver error.
#[inline]
pub fn attribute(attribute: u32, device: CUdevice) -> Result<i32> {
    let mut value = 0;
    // SAFETY: the variable can be written to; the driver checks attribute and device.
    unsafe { call!(cuDeviceGetAttribute(&mut value, attribute, device))? };
    Ok(value)
}

/// Returns the pool that the device starts with.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_DEVICE`, `CUDA_ERROR_NOT_SUPPORTED`, or any other driver error.
#[inline]
pub fn default_mem_pool(device: CUdevice) -> Result<CUmemoryPool> {
    let mut pool = CUmemoryPool::NULL;
    // SAFETY: the variable can be written to; the driver checks the device.
    unsafe { call!(cuDeviceGetDefaultMemPool(&mut pool, device))? };
    Ok(pool)
}

/// Returns the pool that [`alloc_async`](super::memory::alloc_async) uses now.
///
/// # Errors
///
/// As [`default_mem_pool`].
#[inline]
pub fn mem_pool(device: CUdevice) -> Result<CUmemoryPool> {
    let mut pool = CUmemoryPool::NULL;
    // SAFETY: the variable can be written to; the driver checks the device.
    unsafe { call!(cuDeviceGetMemPool(&mut pool, device))? };
    Ok(pool)
}

/// Retains the device's primary context and returns it; the first call creates it. It does not become
/// current.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_DEVICE`, `CUDA_ERROR_OUT_OF_MEMORY`, or any other driver error.
#[inline]
pub fn primary_ctx_retain(device: CUdevice) -> Result<CUcontext> {
    let mut context = CUcontext::NULL;
    // SAFETY: the variable can be written to; the driver checks the device.
    unsafe { call!(cuDevicePrimaryCtxRetain(&mut context, device))? };
    Ok(context)
}

/// Releases the device's primary context once; the last release destroys it with everything in it.
///
/// # Errors
///
/// Any driver error.
///
/// # Safety
///
/// The caller retained it, and uses nothing of it afterwards.
#[inline]
pub unsafe fn primary_ctx_release(device: CUdevice) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuDevicePrimaryCtxRelease_v2(device)) }
}
