//! Memory pools, which stream-ordered allocations take memory from.
//! [`device`](super::device) returns the pools that a device has of its own,
//! [`memory`](super::memory) allocates from them.

use cuguard_sys::{
    CUdevice, CUmemLocation, CUmemPoolProps, CUmemoryPool, pool_attribute, virtual_memory,
};

use super::{Result, call, out};

/// The attributes of a pool that are a number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[non_exhaustive]
pub enum Attribute {
    /// Unused bytes that the pool keeps when a stream, an event or the context is synchronized. Can be set.
    ReleaseThreshold = pool_attribute::RELEASE_THRESHOLD,
    /// The device memory that the pool holds.
    Reserved = pool_attribute::RESERVED_MEM_CURRENT,
    /// The most that it held since this was last set to 0, the only value that it can be set to.
    ReservedHigh = pool_attribute::RESERVED_MEM_HIGH,
    /// The part of it that is allocated.
    Used = pool_attribute::USED_MEM_CURRENT,
    /// The most that was allocated since this was last set to 0, the only value that it can be set to.
    UsedHigh = pool_attribute::USED_MEM_HIGH,
}

/// Creates a pool of device memory on `device`, for this process alone.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_DEVICE`, `CUDA_ERROR_OUT_OF_MEMORY`, `CUDA_ERROR_NOT_SUPPORTED`, or any other driver
/// error.
#[inline]
pub fn create(device: CUdevice) -> Result<CUmemoryPool> {
    let properties = CUmemPoolProps {
        allocType: virtual_memory::ALLOCATION_TYPE_PINNED,
        location: CUmemLocation {
            type_: virtual_memory::LOCATION_TYPE_DEVICE,
            id: device,
        },
        ..CUmemPoolProps::default()
    };
    // SAFETY: the variable can be written to, the properties are read during the call; the driver checks the
    // device.
    out(|pool| unsafe { call!(cuMemPoolCreate(pool, &properties)) })
}

/// Destroys a pool that [`create`] returned. Its memory is released when the last allocation is freed.
///
/// # Errors
///
/// Any driver error.
///
/// # Safety
///
/// The pool is alive, and nothing allocates from it afterwards.
#[inline]
pub unsafe fn destroy(pool: CUmemoryPool) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuMemPoolDestroy(pool)) }
}

/// Releases unused memory of the pool to the device until the pool holds no more than `keep` bytes.
///
/// # Errors
///
/// Any driver error.
///
/// # Safety
///
/// The pool is alive.
#[inline]
pub unsafe fn trim_to(pool: CUmemoryPool, keep: usize) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuMemPoolTrimTo(pool, keep)) }
}

/// Returns an attribute of the pool.
///
/// # Errors
///
/// Any driver error.
///
/// # Safety
///
/// The pool is alive.
#[inline]
pub unsafe fn attribute(pool: CUmemoryPool, attribute: Attribute) -> Result<u64> {
    let mut value = 0_u64;
    let out = (&raw mut value).cast();
    // SAFETY: every `Attribute` is 64 bits wide; the rest is as the caller ensures.
    unsafe { call!(cuMemPoolGetAttribute(pool, attribute as u32, out))? };
    Ok(value)
}

/// Sets an attribute of the pool.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE` for an attribute or a value that cannot be set, or any other driver error.
///
/// # Safety
///
/// The pool is alive.
#[inline]
pub unsafe fn set_attribute(pool: CUmemoryPool, attribute: Attribute, mut value: u64) -> Result {
    let value = (&raw mut value).cast();
    // SAFETY: every `Attribute` is 64 bits wide; the rest is as the caller ensures.
    unsafe { call!(cuMemPoolSetAttribute(pool, attribute as u32, value)) }
}
