//! Copies and fills. `htod` is host to device, `dtoh` device to host, `dtod` within devices.
//!
//! The destination comes first, as in the driver. Sizes of copies are bytes, sizes of fills are elements.
//! Functions that end in `_async` put work on a stream and may return before it is done; the others may
//! too, where only device memory is written.

use std::ffi::c_void;

use cuguard_sys::{CUDA_MEMCPY2D, CUcontext, CUdeviceptr, CUstream};

use super::{Result, call};

/// Copies from host to device.
///
/// # Errors
///
/// `CUDA_ERROR_INVALID_VALUE`, or any other driver error, also that of earlier asynchronous work.
///
/// # Safety
///
/// Both ranges are allocated for `bytes` bytes, and the source is initialized. No unordered work uses the
/// destination.
#[inline]
pub unsafe fn htod(dst: CUdeviceptr, src: *const c_void, bytes: usize) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuMemcpyHtoD_v2(dst, src, bytes)) }
}

/// Copies from device to host, complete on return.
///
/// # Errors
///
/// As [`htod`].
///
/// # Safety
///
/// Both ranges are allocated for `bytes` bytes, and nothing else uses the destination meanwhile. No
/// unordered work writes the source.
#[inline]
pub unsafe fn dtoh(dst: *mut c_void, src: CUdeviceptr, bytes: usize) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuMemcpyDtoH_v2(dst, src, bytes)) }
}

/// Copies from host to device in the order of `stream`.
///
/// # Errors
///
/// As [`htod`].
///
/// # Safety
///
/// As [`htod`], until the copy is complete; and the stream is alive.
#[inline]
pub unsafe fn htod_async(
    dst: CUdeviceptr,
    src: *const c_void,
    bytes: usize,
    stream: CUstream,
) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuMemcpyHtoDAsync_v2(dst, src, bytes, stream)) }
}

/// Copies from device to host in the order of `stream`.
///
/// # Errors
///
/// As [`htod`].
///
/// # Safety
///
/// As [`dtoh`], until the copy is complete; and the stream is alive.
#[inline]
pub unsafe fn dtoh_async(
    dst: *mut c_void,
    src: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuMemcpyDtoHAsync_v2(dst, src, bytes, stream)) }
}

/// Copies from device to device in the order of `stream`.
///
/// # Errors
///
/// As [`htod`].
///
/// # Safety
///
/// Both ranges are allocated for `bytes` bytes until the copy is complete, and do not overlap. No unordered
/// work writes the source or uses the destination. The stream is alive.
#[inline]
pub unsafe fn dtod_async(
    dst: CUdeviceptr,
    src: CUdeviceptr,
    bytes: usize,
    stream: CUstream,
) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuMemcpyDtoDAsync_v2(dst, src, bytes, stream)) }
}

/// Copies between the memory of two contexts, each given with its context, in the order of `stream`.
///
/// # Errors
///
/// As [`htod`].
///
/// # Safety
///
/// As [`dtod_async`], and both contexts are alive until the copy is complete.
#[inline]
pub unsafe fn peer_async(
    (dst, dst_context): (CUdeviceptr, CUcontext),
    (src, src_context): (CUdeviceptr, CUcontext),
    bytes: usize,
    stream: CUstream,
) -> Result {
    // SAFETY: as the caller ensures.
    unsafe {
        call!(cuMemcpyPeerAsync(
            dst,
            dst_context,
            src,
            src_context,
            bytes,
            stream
        ))
    }
}

/// Fills `count` bytes of device memory with `value`.
///
/// # Errors
///
/// As [`htod`].
///
/// # Safety
///
/// The range is allocated, and no unordered work uses it.
#[inline]
pub unsafe fn set_d8(dst: CUdeviceptr, value: u8, count: usize) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuMemsetD8_v2(dst, value, count)) }
}

/// Fills `count` bytes of device memory with `value` in the order of `stream`.
///
/// # Errors
///
/// As [`htod`].
///
/// # Safety
///
/// The range is allocated until the fill is complete, and no unordered work uses it. The stream is alive.
#[inline]
pub unsafe fn set_d8_async(dst: CUdeviceptr, value: u8, count: usize, stream: CUstream) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuMemsetD8Async(dst, value, count, stream)) }
}

/// Fills `count` elements of two bytes with `value` in the order of `stream`.
///
/// # Errors
///
/// As [`htod`]; `CUDA_ERROR_INVALID_VALUE` for an odd address.
///
/// # Safety
///
/// As [`set_d8_async`].
#[inline]
pub unsafe fn set_d16_async(
    dst: CUdeviceptr,
    value: u16,
    count: usize,
    stream: CUstream,
) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuMemsetD16Async(dst, value, count, stream)) }
}

/// Fills `count` elements of four bytes with `value` in the order of `stream`.
///
/// # Errors
///
/// As [`htod`]; `CUDA_ERROR_INVALID_VALUE` for an address that is not a multiple of 4.
///
/// # Safety
///
/// As [`set_d8_async`].
#[inline]
pub unsafe fn set_d32_async(
    dst: CUdeviceptr,
    value: u32,
    count: usize,
    stream: CUstream,
) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuMemsetD32Async(dst, value, count, stream)) }
}

/// Copies rows between host and device memory. Complete on return where host memory is written.
///
/// # Errors
///
/// As [`htod`]; `CUDA_ERROR_INVALID_VALUE` for a pitch that is less than the width or more than the device permits.
///
/// # Safety
///
/// All rows on both sides are allocated and do not overlap, and those of the source are initialized. No unordered work
/// writes the source or uses the destination.
#[inline]
pub unsafe fn copy_2d(copy: &CUDA_MEMCPY2D) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuMemcpy2D_v2(copy)) }
}

/// Fills `height` rows of `width` bytes each, `pitch` bytes apart, with `value`.
///
/// # Errors
///
/// As [`copy_2d`].
///
/// # Safety
///
/// All rows are allocated, and no unordered work uses them.
#[inline]
pub unsafe fn set_2d_d8(
    dst: CUdeviceptr,
    pitch: usize,
    value: u8,
    width: usize,
    height: usize,
) -> Result {
    // SAFETY: as the caller ensures.
    unsafe { call!(cuMemsetD2D8_v2(dst, pitch, value, width, height)) }
}
