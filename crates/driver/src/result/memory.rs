//! Memory: allocating, freeing and registering. [`copy`](super::copy) fills and copies it.

use std::ffi::c_void;

use cuguard_sys::{
    CUcontext, CUdevice, CUdeviceptr, CUmemoryPool, CUresult, CUstream, pointer_attribute,
};

use super::{Result, call, out};

/// The memory of the current context's device, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryInfo {
    /// What is free, for all processes together.
    pub free: usize,
    /// All that there is.
    pub total: usize,
}

/// Returns how much memory the current context's device has, and how much of it is free.
///
/// # Errors
///
/// Any driver error.
#[inline]
pub fn info() -> Result<MemoryInfo> {
    let mut info = MemoryInfo::default();
    // SAFETY: both variables can be written to.
    unsafe { call!(cuMemGetInfo_v2(&mut info.free, &mut info.total))? };
    Ok(info)
}

/// Returns the context that memory at an address belongs to: the one that allocated or registered it. `None` for memory that
/// belongs to no context: pageable memory, and memory of pools.
///
/// # Errors
///
/// Any driver error.
#[inline]
pub fn context_of(address: CUdeviceptr) -> Result<Option<CUcontext>> {
    let mut context = CUcontext::NULL;
    // SAFETY: the variable can be written to, and has the type of the attribute.
    let found = unsafe {
        let out = (&raw mut context).cast();
        call!(cuPointerGetAttribute(
            out,
            pointer_attribute::CONTEXT,
            address
        ))
    };
    match found {
        Err(error) if error.code == CUresult::INVALID_VALUE => Ok(None),
        found => found.map(|()| (!context.is_null()).then_some(context)),
    }
}

/// Allocates device memory in the current context.
///
/// # Errors
///
/// `CUDA_ERROR_OUT_OF_MEMORY`, `CUDA_ERROR_INVALID_VALUE` for 0 bytes, or any other driver error.
#[inline]
pub fn alloc(bytes: usize) -> Result<CUdeviceptr> {
    // SAFETY: the variable can be written to.
    out(|address| unsafe { call!(cuMemAlloc_v2(address, bytes)) })
}

/// Allocates `height` rows of `width` bytes each in the current context, and returns the address and the pitch: the
/// distance of two rows in bytes. Kernels access elements of up to `element` bytes, which is 4, 8 or 16.
///
/// # Errors
///
/// As [`alloc`]; `CUDA_ERROR_INVALID_VALUE` for other values of `element`.
#[inline]
pub fn alloc_pitch(width: usize, height: usize, element: u32) -> Result<(CUdeviceptr, usize)> {
    let mut pitch = 0;
    // SAFETY: both variables can be written to.
    let address = out(|address| unsafe {
        call!(cuMemAllocPitch_v2(
            address, &mut pitch, width, height, element
        ))
    })?;
    Ok((address, pitch))
}

/// Allocates managed memory in the current context; `flags` is
/// [`MEM_ATTACH_GLOBAL`](cuguard_sys::flags::MEM_ATTACH_GLOBAL) or
/// [`MEM_ATTACH_HOST`](cuguard_sys::flags::MEM_ATTACH_HOST).
///
/// # Errors
///
/// As [`alloc`], and `CUDA_ERROR_NOT_SUPPORTED`.
#[inline]
pub fn alloc_managed(bytes: usize, flags: u32) -> Result<CUdeviceptr> {
    // SAFETY: the variable can be written to; the driver checks the flags.
    out(|address| unsafe { call!(cuMemAllocManaged(address, bytes, flags)) })
}

/// Frees what [`alloc`] or [`alloc_managed`] returned, of any context. Waits for the device.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE` where nothing is allocated at `address`, or any other driver error.
///
/// # Safety
///
/// Nothing uses the memory afterwards, and no other code frees it.
#[inline]
pub unsafe fn free(address: CUdeviceptr) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuMemFree_v2(address)) }
}

/// Allocates from the device's current pool, in the order of `stream`.
///
/// # Errors
///
/// As [`alloc`].
///
/// # Safety
///
/// The stream is alive.
#[inline]
pub unsafe fn alloc_async(bytes: usize, stream: CUstream) -> Result<CUdeviceptr> {
    // SAFETY: the variable can be written to; the rest is as the caller ensures.
    out(|address| unsafe { call!(cuMemAllocAsync(address, bytes, stream)) })
}

/// Allocates from `pool`, in the order of `stream`.
///
/// # Errors
///
/// As [`alloc`].
///
/// # Safety
///
/// Pool and stream are alive.
#[inline]
pub unsafe fn alloc_from_pool_async(
    bytes: usize,
    pool: CUmemoryPool,
    stream: CUstream,
) -> Result<CUdeviceptr> {
    // SAFETY: the variable can be written to; the rest is as the caller ensures.
    out(|address| unsafe { call!(cuMemAllocFromPoolAsync(address, bytes, pool, stream)) })
}

/// Frees memory in the order of `stream`, without waiting.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE` where nothing is allocated at `address`, or any other driver error.
///
/// # Safety
///
/// The stream is alive. Only work that the stream is ordered after uses the memory, and no other code frees it.
#[inline]
pub unsafe fn free_async(address: CUdeviceptr, stream: CUstream) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuMemFreeAsync(address, stream)) }
}

/// Page-locks host memory and registers it with the driver; `flags` is
/// [`MEMHOSTALLOC_PORTABLE`](cuguard_sys::flags::MEMHOSTALLOC_PORTABLE), which all contexts accept, or 0.
///
/// # Errors
///
/// `CUDA_ERROR_OUT_OF_MEMORY`, `CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED`, or any other driver error.
///
/// # Safety
///
/// The memory stays allocated until it is unregistered.
#[inline]
pub unsafe fn host_register(start: *mut c_void, bytes: usize, flags: u32) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuMemHostRegister_v2(start, bytes, flags)) }
}

/// Unregisters host memory that [`host_register`] registered.
///
/// # Errors
///
/// `CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED`, or any other driver error.
///
/// # Safety
///
/// `start` is the beginning of a registered range, and no work in flight uses it.
#[inline]
pub unsafe fn host_unregister(start: *mut c_void) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuMemHostUnregister(start)) }
}

/// Returns the address by which the current context reaches page-locked host memory.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE` if the memory is not page-locked or not mapped, or any other driver error.
///
/// # Safety
///
/// The pointer is to host memory that is registered with the driver, and stays so during the call.
#[inline]
pub unsafe fn host_get_device_pointer(start: *mut c_void) -> Result<CUdeviceptr> {
    // SAFETY: the variable can be written to; the rest is as the caller ensures.
    out(|address| unsafe { call!(cuMemHostGetDevicePointer_v2(address, start, 0)) })
}

/// Allocates page-locked host memory; `flags` are those of `cuMemHostAlloc`, such as
/// [`MEMHOSTALLOC_WRITECOMBINED`](cuguard_sys::flags::MEMHOSTALLOC_WRITECOMBINED).
///
/// # Errors
///
/// As [`alloc`].
#[inline]
pub fn host_alloc(bytes: usize, flags: u32) -> Result<*mut c_void> {
    let mut start = std::ptr::null_mut();
    // SAFETY: the variable can be written to; the driver checks the flags.
    unsafe { call!(cuMemHostAlloc(&mut start, bytes, flags))? };
    Ok(start)
}

/// Frees what [`host_alloc`] returned. Waits for the device.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE` where nothing is allocated at `start`, or any other driver error.
///
/// # Safety
///
/// Nothing uses the memory afterwards, and no other code frees it.
#[inline]
pub unsafe fn free_host(start: *mut c_void) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuMemFreeHost(start)) }
}

/// Migrates managed memory to a device, or to the host (`-1`), in the order of `stream`.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_DEVICE`, `CUDA_ERROR_INVALID_VALUE` if the range is not managed memory, or any other driver error.
///
/// # Safety
///
/// The memory stays allocated until it has been migrated, and the stream is alive.
#[inline]
pub unsafe fn prefetch_async(
    address: CUdeviceptr,
    bytes: usize,
    device: CUdevice,
    stream: CUstream,
) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuMemPrefetchAsync(address, bytes, device, stream)) }
}

/// Advises the driver on the use of managed memory; `advice` is one of [`mem_advise`](cuguard_sys::mem_advise), and
/// `device` a device or the host (`-1`).
///
/// # Errors
///
/// As [`prefetch_async`].
///
/// # Safety
///
/// The memory is allocated.
#[inline]
pub unsafe fn advise(address: CUdeviceptr, bytes: usize, advice: u32, device: CUdevice) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuMemAdvise(address, bytes, advice, device)) }
}
