//! Devices: how many there are, what they are, and their primary contexts and memory pools.
//!
//! A device is named by its ordinal, a number that the driver checks; so nearly all of these functions are
//! safe.

use std::ffi::{CStr, c_char};

use cuguard_sys::{CUcontext, CUdevice, CUmemoryPool, CUuuid};

use super::{Result, call, out};

/// Returns how many devices there are.
///
/// # Errors
///
/// `CUDA_ERROR_NOT_INITIALIZED` before [`init`](super::init), or any other driver error.
#[inline]
pub fn count() -> Result<u32> {
    // SAFETY: the variable can be written to.
    let count: i32 = out(|count| unsafe { call!(cuDeviceGetCount(count)) })?;
    Ok(count.max(0) as u32)
}

/// The text that `write` has the driver write to a place of so many bytes.
#[inline]
fn text(buffer: &mut [u8], write: impl FnOnce(*mut c_char, i32) -> Result) -> Result<&CStr> {
    let length = i32::try_from(buffer.len()).unwrap_or(i32::MAX);
    write(buffer.as_mut_ptr().cast(), length)?;
    Ok(CStr::from_bytes_until_nul(buffer).unwrap_or_default())
}

/// Writes the device's name to `buffer` and returns it, cut where the buffer is shorter.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_DEVICE`, or any other driver error.
#[inline]
pub fn name(device: CUdevice, buffer: &mut [u8]) -> Result<&CStr> {
    // SAFETY: the buffer has at least as many bytes as stated.
    text(buffer, |to, length| unsafe {
        call!(cuDeviceGetName(to, length, device))
    })
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
    text(buffer, |to, length| unsafe {
        call!(cuDeviceGetPCIBusId(to, length, device))
    })
}

/// Returns the device with a PCI address, as [`pci_bus_id`] writes it.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE` if there is none, or the text is not an address, or any other driver error.
#[inline]
pub fn by_pci_bus_id(address: &CStr) -> Result<CUdevice> {
    // SAFETY: the variable can be written to; the text ends with a NUL.
    out(|device| unsafe { call!(cuDeviceGetByPCIBusId(device, address.as_ptr())) })
}

/// Returns the device's UUID, or that of the MIG instance that the process sees as the device.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_DEVICE`, or any other driver error.
#[inline]
pub fn uuid(device: CUdevice) -> Result<[u8; 16]> {
    // SAFETY: the variable can be written to; the driver checks the device.
    let uuid: CUuuid = out(|uuid| unsafe { call!(cuDeviceGetUuid_v2(uuid, device)) })?;
    Ok(uuid.bytes.map(|byte| byte as u8))
}

/// Returns whether the device's primary context is active, that is, retained at least once.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_DEVICE`, or any other driver error.
#[inline]
pub fn primary_ctx_is_active(device: CUdevice) -> Result<bool> {
    let (mut flags, mut active) = (0, 0);
    // SAFETY: both variables can be written to; the driver checks the device.
    unsafe { call!(cuDevicePrimaryCtxGetState(device, &mut flags, &mut active)) }?;
    Ok(active != 0)
}

/// Returns the flags of the device's primary context, constants of [`ctx_flags`](cuguard_sys::ctx_flags), whether or not
/// it is active.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_DEVICE`, or any other driver error.
#[inline]
pub fn primary_ctx_flags(device: CUdevice) -> Result<u32> {
    let (mut flags, mut active) = (0, 0);
    // SAFETY: both variables can be written to; the driver checks the device.
    unsafe { call!(cuDevicePrimaryCtxGetState(device, &mut flags, &mut active)) }?;
    Ok(flags)
}

/// Returns the device's memory in bytes.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_DEVICE`, or any other driver error.
#[inline]
pub fn total_mem(device: CUdevice) -> Result<usize> {
    // SAFETY: the variable can be written to; the driver checks the device.
    out(|bytes| unsafe { call!(cuDeviceTotalMem_v2(bytes, device)) })
}

/// Returns an attribute of the device, by a constant of
/// [`device_attribute`](cuguard_sys::device_attribute).
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_DEVICE`, `CUDA_ERROR_INVALID_VALUE`, or any other driver error.
#[inline]
pub fn attribute(attribute: u32, device: CUdevice) -> Result<i32> {
    // SAFETY: the variable can be written to; the driver checks attribute and device.
    out(|value| unsafe { call!(cuDeviceGetAttribute(value, attribute, device)) })
}

/// Returns the pool that the device starts with.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_DEVICE`, `CUDA_ERROR_NOT_SUPPORTED`, or any other driver error.
#[inline]
pub fn default_mem_pool(device: CUdevice) -> Result<CUmemoryPool> {
    // SAFETY: the variable can be written to; the driver checks the device.
    out(|pool| unsafe { call!(cuDeviceGetDefaultMemPool(pool, device)) })
}

/// Returns the pool that [`alloc_async`](super::memory::alloc_async) uses now.
///
/// # Errors
///
/// As [`default_mem_pool`].
#[inline]
pub fn mem_pool(device: CUdevice) -> Result<CUmemoryPool> {
    // SAFETY: the variable can be written to; the driver checks the device.
    out(|pool| unsafe { call!(cuDeviceGetMemPool(pool, device)) })
}

/// Retains the device's primary context and returns it; the first call creates it. It does not become
/// current.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_DEVICE`, `CUDA_ERROR_OUT_OF_MEMORY`, or any other driver error.
#[inline]
pub fn primary_ctx_retain(device: CUdevice) -> Result<CUcontext> {
    // SAFETY: the variable can be written to; the driver checks the device.
    out(|context| unsafe { call!(cuDevicePrimaryCtxRetain(context, device)) })
}

/// Sets the flags of the device's primary context, constants of [`ctx_flags`](cuguard_sys::ctx_flags), whether or not
/// it is active.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE`, `CUDA_ERROR_INVALID_DEVICE`, or any other driver error.
#[inline]
pub fn primary_ctx_set_flags(device: CUdevice, flags: u32) -> Result {
    // SAFETY: the driver checks both.
    unsafe { call!(cuDevicePrimaryCtxSetFlags_v2(device, flags)) }
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
